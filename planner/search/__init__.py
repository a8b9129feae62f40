"""The search: meshes, device orders and remat policies, each solved as a program; the best plan, with a proof.

``search`` is the whole, ``question`` one question of it, ``driver`` its two turns: candidates are solved (``solving``,
tasks of a ``pool`` of processes) and written as plans (``writing``), on a ``board`` that knows the bounds. Of a mesh
that is solved alone the first solution is written while it is proven; of long steps the best so far, and a plan that
can be read stands where the best cannot and takes little less. ``misfit`` says why nothing fits and what would,
``others`` looks for alternatives and the frontier, ``choosing`` for settings left open, ``fitted`` asks the compiler.
"""
