"""The Python packages that a command needs. The shell command that started this one installs them, once.

A command that needs none runs in any Python of 3.11 or later.
"""

import importlib.util
import os

from freestone_lab.commands.options import BARE
from freestone_lab.core.errors import UserError

LAUNCHER = "FREESTONE_COMMAND"  # the path of the shell command, in the environment

WITNESS = "scipy"  # a package of the lock file that nothing else brings


def require(needs: str, arguments: list[str]) -> None:
    """Returns if this Python has the packages. Otherwise the shell command installs them and starts `arguments` again.

    Programs that are started from here do not see the launcher's variable.
    """
    launcher = os.environ.pop(LAUNCHER, "")
    if needs == BARE or importlib.util.find_spec(WITNESS) is not None:
        return
    if not launcher:
        raise UserError(f"this Python lacks packages of lab/requirements*.txt ({WITNESS}); use ./freestone")
    os.execve(launcher, [launcher, f"--with-packages={needs}", *arguments], {**os.environ, LAUNCHER: launcher})
