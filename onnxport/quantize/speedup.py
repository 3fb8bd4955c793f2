"""Whether a lower precision is faster on this CPU; if not, the reason and the setting that would help."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onnxport.core.arrays import Feeds
from onnxport.core.shell_words import quote_option
from onnxport.formats.graph import Node
from onnxport.formats.graph.ort import read_ort
from onnxport.quantize.latency import OPTIMIZED, Speedup, Times, measure_latency, milliseconds, speedup
from onnxport.validate.precision import onnx, tflite
from onnxport.validate.precision.graphs import TypedGraph, target_dtype

# Below this speed-up a lower precision has not paid, and a reason is looked for.
PAYS = 1.5

# Microseconds of a node below which calling a kernel counts as much as its work.
_SMALL = 20.0
# Of all nodes, those that only convert. A graph that is fused throughout has one at each border.
_MUCH = 0.1
_BORDER = 2

# The kernels that sum int8 products faster than float ones (docs/guide/quantize.md), as Linux names what they need.
_FAST_INTEGERS = frozenset("avx_vnni avx512_vnni avx_vnni_int8 amx_int8 asimddp i8mm sve".split())
_ARM = frozenset(("aarch64", "arm64"))
_X86 = frozenset(("x86_64", "AMD64"))

_QUANTIZES = frozenset(("QuantizeLinear", "DequantizeLinear"))
_DYNAMIC = frozenset(
    "DynamicQuantizeLinear DynamicQuantizeMatMul MatMulIntegerToFloat DynamicQuantizeLSTM".split()
)
_FLOAT_PRODUCTS = frozenset("Conv FusedConv ConvTranspose MatMul FusedMatMul Gemm FusedGemm".split())
_INTEGER_PRODUCTS = frozenset(
    "QLinearConv QLinearMatMul QGemm MatMulInteger ConvInteger MatMulIntegerToFloat DynamicQuantizeMatMul".split()
)
_INT8_PRODUCTS = frozenset(("int8", "int8 dynamic", "mixed"))  # precisions of a .tflite file
# The names of what makes integers begin so, or of what computes in them.
_TO_INTEGERS = ("QuantizeLinear", "QLinear", "QGemm", "MatMulInteger", "ConvInteger")
_WIDE = frozenset(("int16", "uint16"))
_HALVES = frozenset(("float16", "bfloat16"))
# What only moves values is not what stands in the way.
_MOVES = frozenset("Transpose Reshape Flatten Squeeze Unsqueeze ReorderInput ReorderOutput Identity".split())
# Ends of an interval that are this far apart say nothing, nor does a machine with as much to do on each core.
_UNSURE = 1.5
_BUSY = 2.0
_FEW = 4  # operators in a sentence


@dataclass(frozen=True)
class Facts:
    """The facts of a timed result."""

    # The machine and those of its instruction sets that matter, by Linux's names (`aarch64 asimddp`).
    words: frozenset[str]
    nodes: int  # of the graph that ONNX Runtime makes of it
    microseconds: float  # that the model before took for each of these
    activations: frozenset[str] = frozenset()  # the types that activations are quantized to
    # QuantizeLinear and DequantizeLinear of computed values that ONNX Runtime fused with nothing. Those that lead to
    # outputs alone do not count: every network of integers has these.
    left: int = 0
    # The float operators that read what is de-quantized, and how often.
    around: Mapping[str, int] | None = None
    # float_products, integer_products: convolutions and matrix products that compute in these.
    float_products: int = 0
    integer_products: int = 0
    dynamic: int = 0  # nodes that measure ranges at run time
    weights: int = 0  # constants that are de-quantized at run time, or read by products that do it themselves
    widened: bool = False  # whether weights of 16-bit floats became float32 ones
    casts: int = 0  # between types of floats

    @property
    def signed(self) -> bool:
        """Return whether activations are signed where ONNX Runtime needs them unsigned."""
        return "int8" in self.activations and bool(self.words & _X86)

    @property
    def converts(self) -> bool:
        """Return whether there are more unfused conversions than borders need."""
        return self.left > max(_BORDER, _MUCH * self.nodes)

    @property
    def products(self) -> int:
        return self.float_products + self.integer_products

    @property
    def is_mostly_float(self) -> bool:
        """Return whether most products stayed float without a reason."""
        return 0 < self.integer_products < self.float_products and not self.converts

    @property
    def named(self) -> str:
        """Return the operators in `around`, most frequent first."""
        found = Counter(self.around or {}).most_common(_FEW)
        return ", ".join(f"{count} {name}" for name, count in found) or "nothing that computes"

    @property
    def excluded(self) -> str:
        """Return the option that leaves these in float, except products."""
        found = [name for name, _ in Counter(self.around or {}).most_common() if name not in _FLOAT_PRODUCTS]
        return quote_option("--exclude", *found[:_FEW]) or "--exclude NODE, for these by name"


@dataclass(frozen=True)
class Rule:
    """A reason why a result is no faster, the condition for it, and the setting that would help."""

    applies: Callable[[Facts], bool]
    reason: str
    setting: str


@dataclass(frozen=True)
class Finding:
    """One reason, and the setting that would help."""

    reason: str
    setting: str


# The only rule that needs no graph of ONNX Runtime's.
_SLOW_CPU = Rule(
    lambda facts: bool(facts.activations) and not facts.words & _FAST_INTEGERS,
    "this CPU computes int8 products no faster than float ones (no VNNI, AMX or dot product)",
    "measure on the target machine, or keep float there",
)
RULES: tuple[Rule, ...] = (
    Rule(
        lambda facts: bool(facts.activations & _WIDE),
        "ONNX Runtime has no products of 16-bit activations: {f.float_products} of them compute in float between "
        "{f.left} conversions",
        "--int8; 16-bit activations are for devices whose runtime multiplies them",
    ),
    _SLOW_CPU,
    Rule(
        lambda facts: facts.signed,
        "activations are signed: ONNX Runtime's fusions on x86 are for unsigned ones, and {f.left} of {f.nodes} nodes "
        "only convert ({f.named})",
        "--activations u8",
    ),
    Rule(
        lambda facts: facts.converts and not facts.signed and not facts.activations & _WIDE,
        "{f.left} of {f.nodes} nodes only convert between integers and floats: ONNX Runtime did not fuse them with "
        "what they surround ({f.named})",
        "{f.excluded}",
    ),
    Rule(
        lambda facts: facts.is_mostly_float,
        "{f.float_products} of {f.products} convolutions and matrix products compute in float",
        "--int8 --calib DIR, or fewer of --exclude: the notes say what stayed in float, and why",
    ),
    Rule(
        lambda facts: facts.dynamic > 0,
        "ranges are measured in every run (nodes: {f.dynamic})",
        "--int8 --calib DIR (fixed ranges)",
    ),
    Rule(
        lambda facts: facts.widened,
        "ONNX Runtime has no kernels of 16-bit floats on this CPU: it computes in float32 (casts on the way: "
        "{f.casts})",
        "--int8 --calib DIR for speed; 16-bit floats make the file small, and are fast on other hardware",
    ),
    Rule(
        lambda facts: facts.weights > 0 and not facts.activations and not facts.dynamic,
        "{f.weights} weights are dequantized in every run, and the products compute in float",
        "--int8 --calib DIR or --dynamic for speed; integers for weights alone make the file small",
    ),
    Rule(
        lambda facts: facts.microseconds < _SMALL,
        "the model is small: {f.microseconds:.0f} microseconds per node, mostly the cost of calling it",
        "a larger batch; for a model of this size the precision hardly matters",
    ),
)
UNSURE = Finding("other programs disturbed the measurement", "run again without them")
UNKNOWN = Finding(
    "none of the known reasons shows in the graph that ONNX Runtime makes of it",
    "run onnxport profile on the result",
)


@dataclass(frozen=True)
class PrecisionEffect:
    """The effect of a lower precision on this CPU."""

    times: Times
    ratio: Speedup
    findings: tuple[Finding, ...]  # why it is hardly faster, or not; empty where it is


def measure_effect(before: Path, after: Path, feeds: Feeds, folder: Path, words: str) -> PrecisionEffect:
    """Time two models; where the second is no faster, find reasons in ONNX Runtime's graph.

    Args:
        folder: private, for ONNX Runtime's graph of the second.
        words: the machine and its instruction sets (Facts.words).

    Raises what latency.measure_latency raises.
    """
    times = measure_latency(before, after, feeds, folder)
    found = speedup(times)
    if found.value >= PAYS:
        return PrecisionEffect(times, found, ())
    # What is slower in nearly every round is not so because of other programs.
    is_unsure = found.high >= 1 and (found.high > _UNSURE * found.low or times.load > _BUSY)
    if after.suffix.lower() not in (".onnx", ".ort"):
        return PrecisionEffect(times, found, _find_cpu(after, words) or ((UNSURE,) if is_unsure else ()))
    facts = read_facts(*_graphs(after, folder), milliseconds(times.before), words)
    return PrecisionEffect(times, found, find_reasons(facts) or (UNSURE if is_unsure else UNKNOWN,))


def _find_cpu(path: Path, words: str) -> tuple[Finding, ...]:
    """Return that the CPU is the reason, where a `.tflite` file computes in int8 and no kernel of it is faster so."""
    facts = Facts(frozenset(words.split()), nodes=0, microseconds=0.0, activations=frozenset(("int8",)))
    if not _SLOW_CPU.applies(facts) or tflite.precision(path) not in _INT8_PRODUCTS:
        return ()
    return (Finding(_SLOW_CPU.reason, _SLOW_CPU.setting),)


def find_reasons(facts: Facts) -> tuple[Finding, ...]:
    """Return every reason that applies, in the table's order."""
    return tuple(
        Finding(rule.reason.format(f=facts), rule.setting.format(f=facts))
        for rule in RULES
        if rule.applies(facts)
    )


def read_facts(file: TypedGraph, graph: TypedGraph, before: float, words: str) -> Facts:
    """Read facts from `graph`, which ONNX Runtime makes of the result `file`; `before` is in milliseconds.

    `file` is needed since ONNX Runtime makes signed activations unsigned, and floats wider.
    """
    kinds = Counter(node.op for node in graph.nodes)
    computed = {name for node in graph.nodes for name in node.output_names}
    inside = _before_integers(graph.nodes)
    left = [
        each
        for each in graph.nodes
        if each.op in _QUANTIZES
        and each.input_names[0] in computed
        and (each.op == "QuantizeLinear" or not inside.isdisjoint(each.output_names))
    ]
    dequantizing = [each for each in graph.nodes if each.op == "DequantizeLinear"]
    unpacked = [each for each in dequantizing if each.input_names[0] in graph.constants]
    return Facts(
        words=frozenset(words.split()),
        nodes=len(graph.nodes),
        microseconds=1000 * before / max(1, len(graph.nodes)),
        activations=frozenset(_activations(file)),
        left=len(left),
        around=_around(graph.nodes, left),
        float_products=sum(kinds[kind] for kind in _FLOAT_PRODUCTS),
        integer_products=sum(kinds[kind] for kind in _INTEGER_PRODUCTS),
        dynamic=sum(kinds[kind] for kind in _DYNAMIC),
        weights=kinds["MatMulNBits"] + len(unpacked),
        widened=_has_halves(file) and not _has_halves(graph),
        casts=kinds["Cast"],
    )


def _graphs(path: Path, folder: Path) -> tuple[TypedGraph, TypedGraph]:
    """Return the graph in the file and the one that ONNX Runtime runs: equal for an `.ort` file."""
    if path.suffix.lower() == ".ort":
        graph = TypedGraph.flatten(read_ort(path).graph)
        return graph, graph
    return onnx.read_typed_graph(path), onnx.read_typed_graph(folder / OPTIMIZED)


def _activations(graph: TypedGraph) -> Iterable[str]:
    """Return the types of quantized activations."""
    for each in graph.nodes:
        if each.op == "QuantizeLinear" or each.op.startswith("QLinear"):
            point = each.input_names[2] if len(each.input_names) > 2 else ""
            yield target_dtype(each) or (
                graph.constants[point].dtype if point in graph.constants else "uint8"
            )


def _before_integers(nodes: Sequence[Node]) -> frozenset[str]:
    """Return the values that a node computes integers from, directly or not: others lead to outputs alone."""
    found = set[str]()
    for node in reversed(nodes):
        if node.op.startswith(_TO_INTEGERS) or not found.isdisjoint(node.output_names):
            found.update(node.input_names)
    return frozenset(found)


def _around(nodes: Iterable[Node], left: Iterable[Node]) -> Mapping[str, int]:
    """Return the operators that read dequantized values."""
    widened = {name for each in left if each.op == "DequantizeLinear" for name in each.output_names}
    found = [each.op for each in nodes if widened.intersection(each.input_names)]
    return Counter(kind for kind in found if kind not in _QUANTIZES | _MOVES)


def _has_halves(graph: TypedGraph) -> bool:
    """Return whether there are weights of 16-bit floats."""
    return any(each.dtype in _HALVES and each.size > 1 for each in graph.constants.values())
