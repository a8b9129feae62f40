"""The integer program of a step on one mesh: a choice of layouts for every kernel, with the prices of an estimate.

``step`` has the kernels before there is a mesh, ``pricing`` their strategies, ``wiring`` the nodes and edges made of
them, ``rows`` the memory that choices use, ``solving`` the rounds that solve it and learn from whole prices. Meshes of
more than two axes are solved ``by_parts``, each order of axes by itself, and the parts of axes that views need
(``in_orders``); what no mesh can hold is seen before (``anywhere``).
"""

from .anywhere import exceeds_anywhere, least_anywhere
from .in_orders import Orders
from .program import Program, build, holds_inside
from .solving.found import Found
from .step.known import Known

__all__ = ["Found", "Known", "Orders", "Program", "build", "exceeds_anywhere", "holds_inside", "least_anywhere"]
