"""The manual pages and the shells' completions, all made from the table of options and from help.txt.

Imports the standard library only: an installation makes them with any Python of 3.11 or later.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from freestone_lab.commands import options

FILES = """\
.SH ENVIRONMENT
.TP
.B FREESTONE_CONF
options of the library, as key:value,key:value.
.TP
.B FREESTONE_PYTHON
a Python that has the packages of the tool; otherwise an environment is made at the first use of a command that needs
them.
.SH FILES
.TP
.I ~/.cache/freestone
the Python environment, and what the tool compiles for itself.
.TP
.I ~/.local/share/freestone/results
result files.
"""
BASH = """\
# bash completion of freestone
_freestone() {{
    local command=${{COMP_WORDS[1]:-}} word=${{COMP_WORDS[COMP_CWORD]}} words=
    local both="$command ${{COMP_WORDS[2]:-}}" place
    for ((place = 1; place < COMP_CWORD; place++)); do
        [ "${{COMP_WORDS[place]}}" != -- ] || {{ COMPREPLY=($(compgen -c -f -- "$word")); return; }}
    done
    [ "$COMP_CWORD" -gt 1 ] || {{ COMPREPLY=($(compgen -W '{commands}' -- "$word")); return; }}
    case $both in
{both}
    *) case $command in
{single}
    esac ;;
    esac
    COMPREPLY=($(compgen -W "$words" -- "$word") $(compgen -f -- "$word"))
}}
complete -o filenames -F _freestone freestone
"""


def names() -> list[str]:
    """Every command that an installation has, in the order of its table."""
    return [name for name in options.COMMANDS if name not in options.SOURCE_TREE]


def escaped(text: str) -> str:
    """Text that troff takes as it is: nothing in it is a request, an escape or a typographic dash."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("%%", "%")
    return re.sub(r"(?m)^(?=[.'])", r"\\&", text)


def _heading(title: str, version: str) -> str:
    return f'.TH {title.upper().replace(" ", "-")} 1 "" "freestone {version}" "User commands"\n'


def _actions(name: str) -> Iterator[argparse.Action]:
    yield from options.parser_of(name)._actions


def page(name: str, version: str) -> str:
    """The manual page of one command."""
    parser = options.parser_of(name)
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    first, _, rest = (parser.description or "").partition("\n\n")
    text, _, examples = rest.partition("Example")
    brief = re.split(r"(?<=[.?]) ", first.replace("\n", " "))[0].removesuffix(".")
    title = escaped(f"freestone-{name.replace(' ', '-')}")
    lines = [_heading(f"freestone {name}", version), ".SH NAME", f"{title} \\- {escaped(brief)}"]
    lines += [".SH SYNOPSIS", escaped(usage), ".SH DESCRIPTION", escaped(first)]
    lines += [f".PP\n{escaped(paragraph)}" for paragraph in text.strip().split("\n\n") if paragraph.strip()]
    lines.append(".SH OPTIONS")
    for action in _actions(name):
        value = str(action.metavar or "|".join(action.choices or ()) or action.dest.upper())
        flags = ", ".join(f"\\fB{escaped(flag)}\\fR" for flag in action.option_strings)
        argument = "" if action.nargs == 0 else f"\\fI{escaped(value)}\\fR"
        said = action.help or ("the program, and what it is given" if action.dest == "command" else "")
        lines.append(f".TP\n{' '.join(filter(None, (flags, argument)))}\n{escaped(said)}")
    if examples:
        commands = [line.strip() for line in examples.partition(":")[2].strip().splitlines() if line.strip()]
        lines += [".SH EXAMPLES", ".nf", *map(escaped, commands), ".fi"]
    return "\n".join([*lines, ".SH SEE ALSO", ".BR freestone (1)"]) + "\n"


def front_page(version: str) -> str:
    """freestone(1): what help.txt says of each command."""
    text = options.HELP.read_text()
    said = {m[1]: m[2] for m in re.finditer(r"(?m)^  (\w+)  +(\S.*)$", text)}
    lines = [_heading("freestone", version), ".SH NAME", "freestone \\- run, observe and compare memory allocators"]
    synopsis = ".B freestone\n.I COMMAND\n[\\fIOPTION\\fR...] [\\fB\\-\\-\\fR \\fIPROGRAM ARGUMENT\\fR...]"
    lines += [".SH SYNOPSIS", synopsis]
    lines += [".SH DESCRIPTION", escaped(text.split("\n\n")[1])]
    for name in names():
        if " " not in name:
            lines.append(f".TP\n.BR freestone\\-{name} (1)\n{escaped(' '.join(said[name].split()))}")
    return "\n".join(lines) + "\n" + FILES


def _flags(name: str) -> list[str]:
    found: list[str] = []
    for action in _actions(name):
        found += [flag for flag in action.option_strings if flag.startswith("--")]
        if action.option_strings == [] and action.choices:
            found += [str(choice) for choice in action.choices]
    return found


def _words(name: str) -> str:
    """What may follow a command: its second words and its options."""
    return " ".join([other.split()[1] for other in names() if other.startswith(f"{name} ")] + _flags(name))


def bash() -> str:
    top = [name for name in names() if " " not in name]
    both = [f"    '{name}') words='{_words(name)}' ;;" for name in names() if " " in name]
    single = [f"        {name}) words='{_words(name)}' ;;" for name in top]
    return BASH.format(commands=" ".join([*top, "--help", "--version"]), both="\n".join(both), single="\n".join(single))


def zsh() -> str:
    """zsh reads bash's completion through its own bridge."""
    return f"#compdef freestone\nautoload -U +X bashcompinit && bashcompinit\n{bash()}"


def fish() -> str:
    said = {m[1]: m[2] for m in re.finditer(r"(?m)^  (\w+)  +(\S.*)$", options.HELP.read_text())}
    lines = ["# fish completion of freestone"]
    for name in names():
        first, _, second = name.partition(" ")
        if second:
            lines.append(f"complete -c freestone -n '__fish_seen_subcommand_from {first}' -a {second}")
            continue
        brief = said[name].replace("'", "\\'")
        lines.append(f"complete -c freestone -n __fish_use_subcommand -a {name} -d '{brief}'")
        for flag in _flags(name):
            lines.append(f"complete -c freestone -n '__fish_seen_subcommand_from {name}' -l {flag.removeprefix('--')}")
    return "\n".join(lines) + "\n"


def write(share: Path, version: str) -> None:
    """Writes each file below `share`, where a system looks for it."""
    texts = {f"man/man1/freestone-{name.replace(' ', '-')}.1": page(name, version) for name in names()}
    texts["man/man1/freestone.1"] = front_page(version)
    texts["bash-completion/completions/freestone"] = bash()
    texts["zsh/vendor-completions/_freestone"] = zsh()
    texts["fish/vendor_completions.d/freestone.fish"] = fish()
    for place, text in texts.items():
        path = share / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
