"""The worker's modules are found as the worker finds them: by their own folder, not through our package."""

from __future__ import annotations

import sys
from pathlib import Path

WORKER = Path(__file__).parents[3] / "src" / "agent_eval_action" / "worker"

if str(WORKER) not in sys.path:
    sys.path.append(str(WORKER))
