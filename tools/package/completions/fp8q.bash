# bash completion for fp8q.  The program itself says what may stand where: `fp8q __complete WORD...`.
_fp8q() {
    local line=${COMP_LINE:0:COMP_POINT} current=${COMP_WORDS[COMP_CWORD]} words word cut
    # bash takes = and : for words of their own, fp8q does not.  Without -r a backslash keeps a space.
    # shellcheck disable=SC2162
    read -a words <<<"$line"
    [[ $line != *[[:blank:]] ]] || words+=('')
    [[ $current != [=:] ]] || current=

    # bash replaces only its own idea of the current word: the rest of ours must not come twice.
    word=${words[${#words[@]} - 1]}
    cut=${word%"$current"}
    while IFS=$'\t' read -r word _; do
        if [[ $word == :files ]]; then
            compopt -o filenames
            while IFS= read -r word; do
                COMPREPLY+=("$word")
            done < <(compgen -f -- "$current")
        else
            COMPREPLY+=("${word#"$cut"}")
        fi
    done < <("${words[0]/#\~/$HOME}" __complete "${words[@]:1}" 2>/dev/null)
}
complete -F _fp8q fp8q
