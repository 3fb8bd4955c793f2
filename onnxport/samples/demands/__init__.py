"""What operators demand of the values that reach them, traced back to the inputs of the graph.

`operators` says what an operator demands of each input, `parameters` chooses values for the inputs that say how an
operator works (axes, shapes, pads), and `backward` carries demands through arithmetic to the graph's inputs.
"""
