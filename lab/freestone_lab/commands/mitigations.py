"""`freestone bench mitigations`: arguments in, table and file out."""

import sys
from argparse import Namespace

from freestone_lab.core import outputs, paths
from freestone_lab.core.errors import UserError
from freestone_lab.core.result_file import save
from freestone_lab.docs import tables
from freestone_lab.engine import preparation, session
from freestone_lab.report import terminal
from freestone_lab.workloads import mitigation_costs, tasks


def run(options: Namespace) -> int:
    say = preparation.to_stderr
    wanted = mitigation_costs.variants(mitigation_costs.policy_text(paths.root()))
    chosen = mitigation_costs.build(wanted, say)
    plan = tasks.plan(options.rounds, preparation.fresh_seed() if options.seed is None else options.seed)
    plans = [(task, plan) for task in mitigation_costs.tasks(say)]
    path = outputs.usable(options.output or outputs.new_name("mitigations", ".json.gz"), say)
    with terminal.progress(terminal.console(stderr=True), len(plans)) as tell:
        outcome = session.Sitting(plans, chosen, ["freestone", *sys.argv[1:]], tell, say=say).run()
    if not outcome.result.experiments:
        raise UserError("nothing was measured")
    outputs.write(path, lambda place: save(outcome.result, place), say)
    print(tables.mitigations(outcome.result))
    print(f"written: {path}")
    return 130 if outcome.interrupted else 0
