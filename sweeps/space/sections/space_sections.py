"""Parse the sections under `space:`: preprocessor, scaling and params."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from sweeps.core.resources import ELASTIC
from sweeps.core.text.suggestions import closest, did_you_mean
from sweeps.space.model.conditions import Term
from sweeps.space.model.domains import RULES, domain_kind
from sweeps.space.model.templates import Sections, Template
from sweeps.space.parse.dimension_parser import NAMES, Read
from sweeps.space.parse.key_suggestions import suggest
from sweeps.space.parse.nodes import INVALID, Node, Problems
from sweeps.space.parse.parameter_checks import mismatch
from sweeps.space.schema.parameter_schema import Fragment, allows
from sweeps.space.yaml.scalars import Scalar

from .chain_parser import ChainParser
from .trainer_choice import misplaced
from .trainer_spec import TrainerSpec

# Descriptions of the keys of the section `space`.
SECTION_DESCRIPTIONS = {
    "preprocessor": "A step, a list of steps, or a domain of these.",
    "scaling": "The number of workers of a trial, and the resources of each worker; or a domain of "
    "such mappings.",
    "params": "The parameters that the loop gets as `config`. Mappings and lists may be nested.",
}
SECTIONS = tuple(SECTION_DESCRIPTIONS)
# Parameters for which the frameworks take a list of quantiles. The model then predicts several
# numbers. In CatBoost, the loss `MultiQuantile` does the same.
_QUANTILES = (("xgboost", "quantile_alpha"), ("xgboost", "expectile_alpha"), ("lightgbm", "alpha"))
MOST_NAMES = 12  # the largest number of parameters that a message lists
SCALING: dict[str, Fragment] = {
    "num_workers": {
        "type": "integer",
        "minimum": 1,
        "maximum": 1_000_000,
        "default": 1,
        "description": "Number of workers of a trial. With `{elastic: [lower, upper]}`, the number "
        "may change while the trial runs.",
    },
    "use_gpu": {
        "type": "boolean",
        "default": False,
        "description": "Whether each worker has 1 GPU. The key `GPU` of `resources_per_worker` "
        "sets another amount.",
    },
    "resources_per_worker": {
        "type": "object",
        "description": "Amount of each resource of a worker: `CPU` (1 unless you set it), `GPU` "
        "(may be a fraction), `memory` in bytes, "
        "and Ray's custom resources.",
    },
}
AMOUNT: Fragment = {
    "type": "number",
    "minimum": 0,
    "maximum": 10**15,
    "description": "Amount of this resource for each worker. The amount of `memory` is in bytes.",
}


class SpaceParser(ChainParser):
    """Parser of the section `space`.

    Args:
        problems: Collects the problems.
        roots: Folders in which the user's modules are looked up.
        started: True for the file of a sweep that has already started. The trainer's module may
            have changed since, so that parameters are not checked.

    Attributes:
        trainers: The trainers of the space, by label; see `read_trainers`. Set before `space` is
            called.
        trainer_template: The second result of `read_trainers`.
    """

    def __init__(self, problems: Problems, roots: tuple[Path, ...], started: bool):
        super().__init__(problems, roots)
        self.started = started
        self.trainers: dict[str, TrainerSpec] = {}
        self.trainer_template: Template = None

    def space(self, node: Node) -> Sections:
        """Parse all sections under `space`.

        Return their templates by name, in the order of the file.
        """
        if node.value is None:
            return {}
        if not node.is_map:
            node.wrong(f"must be a mapping with sections {', '.join(SECTIONS)}, got {node.show()}")
            return {}
        parsers: dict[str, Read] = {
            "preprocessor": self.chain,
            "scaling": self.scaling,
            "params": self.params,
        }
        sections = {}
        for key, child in node.items():
            if key not in parsers:
                listed = f"valid: {', '.join(SECTIONS)}; put a parameter of the loop under `params`"
                hint = suggest("space", key, SECTIONS, listed)
                self.problems.add(child.at, f"space.{key}", f"unknown section; {hint}")
            else:
                sections[key] = parsers[key](child)
        return sections

    def params(self, node: Node) -> Template:
        """Parse the parameters of the trainer, or a mapping with a block for each trainer."""
        if self.trainer_template is None:
            return self._block(node, self.trainers.get(""))
        if not node.is_map:
            labels = ", ".join(self.trainers)
            text = f"must be a mapping with a block for each trainer ({labels}), got {node.show()}"
            return node.wrong(text)
        return {label: self._labeled_block(child, label) for label, child in node.items()}

    def _labeled_block(self, node: Node, label: Scalar) -> Template:
        """Parse the parameters of one of several trainers.

        Its dimensions have the implied condition that the trainer is chosen.
        """
        trainer = self.trainers.get(str(label))
        if trainer is None and self.trainer_template is not INVALID:
            hint = misplaced(str(label), self.trainers)
            text = f"`params` has a block for each trainer, and this key is none of them; {hint}"
            return node.wrong_key(text)
        if trainer is None and (not node.is_map or domain_kind(node.value)):
            return INVALID  # probably a parameter; the problem of `trainer` is enough
        if self.trainer_template is not INVALID:
            self.when_parser.implied = (Term("trainer", keys=(str(label),)),)
        block = self._block(node, trainer)
        self.when_parser.implied = ()
        return block

    def _block(self, node: Node, trainer: TrainerSpec | None) -> Template:
        """Parse a mapping of parameters, or a dimension whose options are such mappings."""
        read = partial(self._parameter, trainer=trainer)
        return self._mapping(node, "such as {eta: 0.1}", read)

    def scaling(self, node: Node) -> Template:
        """Parse a mapping with the keys of `SCALING`, or a dimension of such mappings."""
        return self._mapping(node, f"with keys {', '.join(SCALING)}", self._scaling_key)

    def _mapping(self, node: Node, form: str, read: Callable[[Node, Scalar], Template]) -> Template:
        """Parse a mapping, or a dimension whose options are mappings.

        Args:
            node: The mapping.
            form: The expected form of the mapping, for messages.
            read: Function that parses the value of one key, given the value and the key.
        """

        def mapping(node: Node) -> Template:
            if node.value is not None and not node.is_map:
                return node.wrong(f"must be a mapping {form}, got {node.show()}")
            # `domain` has added a problem for `when`, which is allowed only beside a domain.
            return {key: read(child, key) for key, child in node.items() if key != "when"}

        return self.value(node, mapping, values=NAMES)

    def _parameter(self, node: Node, name: Scalar, trainer: TrainerSpec | None) -> Template:
        """Parse and check the value of one parameter of a trainer."""
        if not isinstance(name, str) or not name:
            return node.wrong_key("the name of a parameter must be text; put quotes around it")
        template = self.anything(node)
        if template is not INVALID and trainer is not None and not self.started:
            self._check_parameter(node, name, template, trainer)
        return template

    def _check_parameter(
        self, node: Node, name: str, template: Template, trainer: TrainerSpec
    ) -> None:
        """Check a parameter's name and values against the trainer's `TRAINER["parameters"]`."""
        known = trainer.definition.parameters
        if not known:
            return
        has_quantiles = (trainer.name, name) in _QUANTILES and node.is_list
        if has_quantiles or "MultiQuantile" in str(node.plain()):
            text = "a model predicts one quantile; give one, and run a sweep for each of the others"
            node.wrong(f"{text}, got {node.show()}")
            return
        if name in known:
            self.check_values(known[name], node, template)
            return
        others = {label: each for label, each in self.trainers.items() if each is not trainer}
        owned = any(name in each.definition.parameters for each in others.values())
        is_refused = (
            not trainer.definition.additional_parameters
            or owned
            or closest(name, known, cutoff=0.8)
        )
        if is_refused and name not in trainer.definition.aliases:
            listed = None
            hidden = len(known) - MOST_NAMES
            if hidden > 0:
                names = ", ".join(list(known)[:MOST_NAMES])
                listed = f"valid: {names} and {hidden} more, which `sweeps schema` lists"
            hint = misplaced(name, others) if owned else did_you_mean(name, known, listed)
            node.wrong_key(f"is not a parameter of {trainer.title}; {hint}")

    def _scaling_key(self, node: Node, key: Scalar) -> Template:
        """Parse the value of one key of `scaling`."""
        if key == "resources_per_worker":
            return self._mapping(node, "such as {CPU: 1}", self._amount)
        if key == "num_workers":
            return self._scaling_value(node, SCALING[key], self._num_workers)
        if key in SCALING:
            return self._scaling_value(node, SCALING[key])
        return node.wrong_key(f"unknown key; {suggest('scaling', key, SCALING)}")

    def _num_workers(self, node: Node) -> Template:
        """Parse a number of workers, or an elastic number such as {elastic: [1, 4]}."""
        if node.is_map and ELASTIC in node.value:
            return self._elastic(node)
        if node.is_list and len(node.value) == 2:  # Ray Train takes two bounds
            return node.wrong(
                f"{mismatch(SCALING['num_workers'], node)}; for a number that may change while a "
                f"trial runs, write {{elastic: {node.show()}}}"
            )
        return self._scaling_constant(node, SCALING["num_workers"])

    def _elastic(self, node: Node) -> Template:
        """Parse an elastic number of workers.

        It is a constant, because every trial has the same two bounds.
        """
        form = "elastic needs a list [lower, upper]"
        bounds = node.value[ELASTIC]
        if len(node.value) > 1:
            others = ", ".join(str(key) for key in node.value if key != ELASTIC)
            text = f"`elastic` must be the only key of its mapping; the mapping also has: {others}"
            return node.wrong(text, bounds.at)
        if not bounds.is_list or len(bounds.value) != 2:
            text = f"{form} with two numbers of workers, got {bounds.show()}"
            return node.wrong(text, bounds.mark)
        for bound in bounds.value:
            if not allows(SCALING["num_workers"], bound.plain()):
                rule = mismatch(SCALING["num_workers"], bound, tunable=False)
                return node.wrong(f"{form}: each bound {rule}", bound.mark)
        lower, upper = map(int, bounds.plain())  # 1.0 is an integer in JSON Schema.
        if lower >= upper:
            hint = ""
            if lower == upper:
                hint = f"; for a fixed number of workers, write `num_workers: {lower}`"
            return node.wrong(
                f"{form}: the upper bound must be greater than the lower bound, got "
                f"{bounds.show()}{hint}",
                bounds.mark,
            )
        return {ELASTIC: [lower, upper]}

    def _amount(self, node: Node, resource: Scalar) -> Template:
        """Parse the amount of a resource of one worker."""
        if not isinstance(resource, str) or not resource:
            return node.wrong_key("a resource's name must be text")
        # Ray would wait forever for a custom resource of this name.
        if resource not in ("CPU", "GPU") and resource.upper() in ("CPU", "GPU"):
            return node.wrong_key(f"unknown resource; did you mean `{resource.upper()}`?")
        return self._scaling_value(node, AMOUNT)

    def _scaling_value(self, node: Node, fragment: Fragment, read: Read | None = None) -> Template:
        """Parse a scalar, or a dimension of scalars.

        Args:
            node: The value in the space file.
            fragment: JSON Schema of the scalars.
            read: Function that parses a constant. If None, a constant must fit the fragment.
        """
        return self.value(
            node,
            read or partial(self._scaling_constant, fragment=fragment),
            values="integers",
            numbers=partial(self._scaling_range, fragment=fragment),
        )

    def _scaling_constant(self, node: Node, fragment: Fragment) -> Template:
        """Parse a scalar that the fragment allows. Null is not allowed."""
        if node.value is None or not allows(fragment, node.plain()):
            return node.wrong(mismatch(fragment, node))
        constant: Scalar = node.value
        return constant

    def _scaling_range(self, node: Node, kind: str, fragment: Fragment) -> Template:
        """Parse a range of integers.

        All resource requirements that a trial may have must be known before the sweep starts. A
        range of fractions is therefore not allowed.
        """
        if not RULES[kind].integer:
            return node.wrong(
                f"must be a constant, a grid, a choice or a range of integers, got {node.show()}"
            )
        template = self.numbers(node, kind)
        if template is not INVALID:
            self.check_values(fragment, node, template)
        return template
