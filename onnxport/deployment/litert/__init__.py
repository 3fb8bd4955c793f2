"""`.tflite` files and what LiteRT's delegates make of them."""
