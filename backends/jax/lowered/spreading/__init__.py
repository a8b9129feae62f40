"""Shardy's propagation over a step whose operations stay the same from plan to plan, in a fraction of its time.

What an operation tells its tensors hangs on its rule and on how they lie, and is worked out once (``rule``); an
operation whose tensors lie as they did is not looked at again (``rounds``). All else is as Shardy has it, the order in
which operations are looked at included: what is found is found by who comes first. Loops are entered (``entered``):
their operations stand in one graph, and are nested again as it is written (``writer``).
"""
