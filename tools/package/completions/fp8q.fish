# fish completion for fp8q.  The program itself says what may stand where: `fp8q __complete WORD...`.
function __fp8q_complete
    set -l before (commandline -opc)
    set -l current (commandline -ct)
    set -l program $before[1]
    set -e before[1]

    for line in ($program __complete $before "$current" 2>/dev/null)
        if test "$line" = :files
            # fish wants the whole word, what stands before the = too.
            set -l lead (string match -r -- '^--[^=]*=' "$current")
            __fish_complete_path (string replace -- "$lead" '' "$current") | string replace -r '^' -- "$lead"
        else
            echo $line
        end
    end
end
complete -c fp8q -f -a '(__fp8q_complete)'
