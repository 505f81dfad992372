# One man page for each command, cut from the whole page: awk -v DIR=OUT -f command_pages.awk docs/fp8q.1
#
# A command's page has its row of COMMANDS (synopsis and what it does), its own section, the sections that it
# shares with others, and EXIT STATUS.  What stands before the first .TP of its section describes it.

/^\.TH / { $1 = $2 = $3 = ""; title = $0; next }

/^\.SH / { section = substr($0, 5); head = 0; next }

section == "COMMANDS" && $0 == ".TP" { head = 1; next }
section == "COMMANDS" && head == 1 {
    name = $3; sub("\".*", "", name)
    names[++n] = name
    synopsis[name] = $0
    head = 2
    next
}
section == "COMMANDS" && head == 2 { summary[name] = $0; head = 0; next }

{ text[section] = text[section] $0 "\n" }

function upper(name) { return "FP8Q " toupper(name) }

# The paragraphs of a section before its options, and the options.
function description(body) { return index(body, ".TP\n") ? substr(body, 1, index(body, ".TP\n") - 1) : body }
function options(body) { return index(body, ".TP\n") ? substr(body, index(body, ".TP\n")) : "" }

END {
    for (i = 1; i <= n; i++) {
        name = names[i]
        page = DIR "/fp8q-" name ".1"
        body = text[upper(name)]
        if (body == "" || summary[name] == "") {
            print "command_pages.awk: no section or no summary of " name > "/dev/stderr"
            exit 1
        }

        printf ".TH FP8Q\\-%s 1%s\n", toupper(name), substr(title, 3) > page
        printf ".SH NAME\nfp8q\\-%s \\- %s\n", name, summary[name] > page
        printf ".SH SYNOPSIS\n%s\n", synopsis[name] > page
        printf ".SH DESCRIPTION\n%s", description(body) > page
        printf ".SH OPTIONS\n%s", options(body) > page

        for (section in text)
            if (section ~ "^INPUTS OF " && section ~ toupper(name))
                printf ".SS Inputs\n%s", text[section] > page
        printf ".SS Common options\n%s", text["COMMON OPTIONS"] > page

        printf ".SH EXIT STATUS\n%s", text["EXIT STATUS"] > page
        printf ".SH SEE ALSO\n.BR fp8q (1)\n" > page
        close(page)
    }
}
