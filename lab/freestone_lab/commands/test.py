"""`freestone test`: the tests of the repository, summed in one line."""

from argparse import Namespace

from freestone_lab.core.errors import UserError
from freestone_lab.engine import preparation
from freestone_lab.host import own_tests, real_programs
from freestone_lab.host.progress import Progress
from freestone_lab.peers import packages


def run(options: Namespace) -> int:
    if options.form == "programs":
        real_programs.must_be_known(options.parts)
        preparation.ensure_packages(packages.missing_programs(), preparation.to_stderr)
        wanted = [name for name in real_programs.packages(options.parts) if not packages.is_installed(name)]
        preparation.ensure_packages(wanted, preparation.to_stderr)
        return real_programs.survey(options.parts, preparation.to_stderr)
    known = [*(p.preset for p in own_tests.PARTS), own_tests.LAB]
    for name in options.parts:
        if name not in known:
            raise UserError(f"test: unknown part '{name}'; expected one of {', '.join(known)}")
    form = own_tests.Form(options.form)
    programs = packages.PROGRAMS if form is not own_tests.Form.SHORT or options.parts else packages.SHORT_PROGRAMS
    wanted = [*packages.missing_programs(programs), *packages.missing_peers()]
    preparation.ensure_packages(wanted, preparation.to_stderr)
    tally = own_tests.run_all(options.parts, form, Progress())
    for line in tally.problems:
        print(f"failed: {line}")
    print(tally.seconds_line())
    print(tally.line())
    return 0 if tally.good else 1
