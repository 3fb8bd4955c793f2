"""The models that are quantized, and what is measured for each."""

from __future__ import annotations

from dataclasses import dataclass

from fixtures import minilm, samples


@dataclass(frozen=True)
class Subject:
    """A model.

    Attributes:
        name: in the tables.
        key: of fixtures.samples.
        cost: whether the cost of quantizing it has a target.
        scored: whether its answers mean something; random weights' do not.
        gain: how many dB more than ONNX Runtime's MinMax the issue asks for; None where it asks for the best peer's.
        text: whether ONNX Runtime's dynamic quantization is the one to beat.
        most_lost: the points of accuracy that it may lose on labelled samples, where it has such.
        test: samples to score on.
    """

    name: str
    key: str
    cost: bool = False
    scored: bool = True
    gain: float | None = None
    text: bool = False
    most_lost: float | None = None
    test: int = 64


SUBJECTS = {
    subject.name: subject
    for subject in (
        Subject("mobilenetv2", "mobilenetv2/mobilenetv2.onnx", cost=True, gain=4.0, test=84),
        Subject(
            "efficientnet-lite0", "efficientnet_lite0/efficientnet_lite0.onnx", cost=True, gain=4.0, test=84
        ),
        Subject("resnet50", "light/resnet50", cost=True, scored=False),
        Subject("rapidocr-det", "rapidocr-v4/ch_PP-OCRv4_det_infer.onnx", cost=True),
        Subject("rapidocr-rec", "rapidocr-v4/ch_PP-OCRv4_rec_infer.onnx"),
        Subject("rapidocr-cls", "rapidocr-v4/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
        Subject("nudenet", "nudenet/320n.onnx", test=30),
        Subject("u2netp", "u2netp/u2netp.onnx", test=42),
        Subject("yunet", "yunet/face_detection_yunet_2023mar.onnx", test=30),
        Subject("mobilenetv3-small", samples.GLYPHS, most_lost=2.0, test=2000),
        Subject("minilm", minilm.KEY, text=True, test=32),
    )
}
