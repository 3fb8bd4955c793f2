"""Keras models and TensorFlow functions that the tests export from, as a user writes them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf
from keras import layers


def cnn() -> keras.Model:
    """image [N, 32, 32, 3] of 0..255 to scores [N, 10] and embedding [N, 12]."""
    keras.utils.set_random_seed(0)
    image = keras.Input((32, 32, 3), name="image")
    x = layers.Rescaling(1 / 255)(image)
    x = layers.Conv2D(8, 3, strides=2, padding="same", use_bias=False)(x)
    x = layers.ReLU(6)(layers.BatchNormalization()(x))
    y = layers.DepthwiseConv2D(3, padding="same", activation="swish")(x)
    gate = layers.Dense(8, "sigmoid")(layers.GlobalAveragePooling2D(keepdims=True)(y))
    x = layers.Add()([x, layers.Multiply()([y, gate])])
    x = layers.GlobalAveragePooling2D()(layers.Conv2D(12, 1, activation="gelu")(x))
    return keras.Model(image, {"scores": layers.Dense(10, "softmax")(x), "embedding": x})


def tagger() -> keras.Model:
    """tokens [N, T] of 0..49 to tags [N, T, 5]."""
    keras.utils.set_random_seed(0)
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    x = layers.Embedding(50, 8, mask_zero=True)(tokens)
    x = layers.Bidirectional(layers.GRU(6, return_sequences=True))(x)
    x = layers.LSTM(8, return_sequences=True)(x)
    return keras.Model(tokens, layers.Dense(5, name="tags")(x))


class Encoder(keras.Model):
    """A block of attention, which does not say what it takes."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.mixed = layers.MultiHeadAttention(2, 4)
        self.norm = layers.LayerNormalization()
        self.dense = layers.Dense(width, "gelu")
        self.dropout = layers.Dropout(0.5)

    def call(self, x: Any, training: bool = False) -> Any:
        x = self.dense(x)
        return self.dropout(self.norm(x + self.mixed(x, x)), training=training)


def encoder(width: int = 8) -> keras.Model:
    keras.utils.set_random_seed(0)
    return Encoder(width)


class Lookup(tf.Module):
    """words [N] to their numbers: a table, which no file of weights holds."""

    def __init__(self) -> None:
        entries = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1, 2], tf.int64))
        self.table = tf.lookup.StaticHashTable(entries, -1)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="words")])
    def __call__(self, words: Any) -> Any:
        return {"number": self.table.lookup(words)}


lookup = Lookup


@tf.function
def distances(a: Any, b: Any) -> Any:
    """[N, D] and [M, D] to [N, M]."""
    return {"distance": tf.norm(a[:, None] - b[None], axis=-1)}


def unsupported() -> Any:
    signature = [tf.TensorSpec([None, 4, 4], name="x")]
    return tf.function(
        lambda x: tf.linalg.svd(x)[0] + tf.linalg.logdet(x)[..., None], input_signature=signature
    )
