import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { createObjectGenerators, type ObjectGenerators } from "./object-generators.ts";
import { deletionStep, generateCreateStep } from "./scenario-parts.ts";
import {
  buildMergePatch,
  type GeneratedKind,
  lastDeletionStep,
  parityGeneratedKinds,
  patchTypeGenerator,
  pickOne,
  type RequestSequence,
  requestOptions,
  type SequenceRequest,
  scenarioOnlyKinds,
  toPatch,
} from "./steps.ts";

/** Kinds that are not generated for every rule, because not every API server serves or stores them. */
const excludedKinds: readonly GeneratedKind[] = ["podgroups", "localsubjectaccessreviews"];
const usualKinds = (Object.keys(parityGeneratedKinds) as GeneratedKind[]).filter(
  (kind) => !excludedKinds.includes(kind),
);

/** Generates a request that changes an object of a kind, creates it again, deletes it, or is about a subresource. */
const buildChange = (kind: GeneratedKind, generators: ObjectGenerators): Arbitrary<SequenceRequest> => {
  const { common, edits, buildObject, subresources } = generators;
  const edit = fc.oneof(
    ...common.map((arbitrary) => ({ weight: 1, arbitrary })),
    ...edits[kind].map((arbitrary) => ({ weight: 2, arbitrary })),
  );
  const editList = fc.array(edit, { minLength: 1, maxLength: 2 });
  return fc.oneof(
    {
      weight: 4,
      arbitrary: fc
        .tuple(requestOptions, editList)
        .map(([options, edits]): SequenceRequest => ({ ...options, verb: "replace", edits })),
    },
    {
      weight: 5,
      arbitrary: fc.tuple(requestOptions, patchTypeGenerator, editList).map(
        ([options, type, edits]): SequenceRequest => ({
          ...options,
          verb: "patch",
          type,
          body: toPatch(type, edits),
        }),
      ),
    },
    { weight: 1, arbitrary: generateCreateStep(buildObject(kind)) },
    { weight: 2, arbitrary: buildApply(kind, generators) },
    { weight: 1, arbitrary: buildApply(kind, generators, editList.map(buildMergePatch)) },
    // A deletion may come before other steps, because an object with finalizers or a grace period can still be changed.
    { weight: 1, arbitrary: deletionStep },
    ...Object.entries(subresources[kind]).flatMap(([subresource, edit]) => [
      {
        weight: 1,
        arbitrary: fc.tuple(requestOptions, edit).map(([options, edit]): SequenceRequest => {
          return { ...options, verb: "replace", subresource, edits: [edit] };
        }),
      },
      {
        weight: 1,
        arbitrary: fc.tuple(requestOptions, patchTypeGenerator, edit).map(([options, type, edit]): SequenceRequest => {
          return { ...options, verb: "patch", subresource, type, body: toPatch(type, [edit]) };
        }),
      },
      // Nothing is applied to the subresource `scale`, because its object is of another kind, Scale.
      ...(subresource === "scale"
        ? []
        : [
            {
              weight: 1,
              arbitrary: buildApply(
                kind,
                generators,
                edit.map((edit) => buildMergePatch([edit])),
              ).map((step) => ({ ...step, subresource })),
            },
          ]),
    ]),
    ...(kind === "pods" ? [{ weight: 1, arbitrary: bindingOrEviction }] : []),
  );
};

/** Generates a request to a pod's subresource `binding` or `eviction`. */
const bindingOrEviction: Arbitrary<SequenceRequest> = fc
  .tuple(requestOptions, fc.boolean())
  .map(([options, isEviction]): SequenceRequest => {
    return isEviction
      ? { ...options, verb: "create", subresource: "eviction", body: { apiVersion: "policy/v1", kind: "Eviction" } }
      : {
          ...options,
          verb: "create",
          subresource: "binding",
          body: { apiVersion: "v1", kind: "Binding", target: { apiVersion: "v1", kind: "Node", name: "n1" } },
        };
  });

/** Builds a step in which one of two field managers applies a generated object server-side, or only these fields. */
const buildApply = (
  kind: GeneratedKind,
  { buildObject }: ObjectGenerators,
  someFields?: Arbitrary<JsonMap>,
): Arbitrary<SequenceRequest> => {
  const { apiVersion, kind: name } = parityGeneratedKinds[kind];
  const body = someFields?.map((fields) => ({ apiVersion, kind: name, ...fields })) ?? buildObject(kind);
  return fc
    .tuple(requestOptions, body, pickOne("one", "other"), fc.boolean())
    .map(([options, body, manager, force]): SequenceRequest => ({ ...options, verb: "apply", manager, force, body }));
};

/** Generates a sequence that creates an object, changes it up to four times, and deletes it. */
const buildSequence = (kind: GeneratedKind, generators: ObjectGenerators): Arbitrary<RequestSequence> =>
  fc
    .record({
      generateName: fc.oneof({ weight: 7, arbitrary: pickOne(false) }, { weight: 1, arbitrary: pickOne(true) }),
      first: fc.oneof(
        { weight: 7, arbitrary: generateCreateStep(generators.buildObject(kind)) },
        { weight: 1, arbitrary: buildApply(kind, generators) },
      ),
      changes: fc.array(buildChange(kind, generators), { maxLength: 4 }),
      last: lastDeletionStep,
    })
    .map(({ generateName, first, changes, last }): RequestSequence => {
      return { kind, namespace: "default", generateName, steps: [first, ...changes, last] };
    });

/** The namespaces and the planned sequences that generated requests for a rule use. */
export interface SequenceGeneratorOptions {
  /**
   * More namespaces for the generated requests, besides `default`; undefined stands for a namespace that doesn't exist
   * before the sequence. A name that is listed twice is chosen twice as often.
   */
  namespaces?: readonly (string | undefined)[];
  /** Planned sequences, for requests that would rarely be generated by chance. */
  scenarios?: readonly Arbitrary<RequestSequence>[];
}

/** Generates requests for a rule: most are about resources that the rule matches, some are about others. */
export const buildSequences = (
  matches: readonly RequestMatch[],
  { namespaces = [], scenarios = [] }: SequenceGeneratorOptions = {},
): Arbitrary<RequestSequence> => {
  const resources = matches.flatMap(({ resources }) => resources.map((path) => path.split("/")[0]));
  const isMatched = (kind: GeneratedKind) =>
    resources.includes(kind) || (resources.includes("*") && usualKinds.includes(kind));
  const matchedKinds = (Object.keys(parityGeneratedKinds) as GeneratedKind[]).filter(isMatched);
  const validObjects = createObjectGenerators({ mayBeInvalid: false });
  const buildSequencesOf = (kinds: GeneratedKind[], generators: ObjectGenerators) =>
    fc.oneof(...kinds.map((kind) => buildSequence(kind, generators)));
  const kinds = matchedKinds.length > 0 ? matchedKinds : usualKinds;
  const sequences = fc.oneof(
    { weight: 12, arbitrary: buildSequencesOf(kinds, validObjects) },
    { weight: 4, arbitrary: buildSequencesOf(kinds, createObjectGenerators({ mayBeInvalid: true })) },
    { weight: 2, arbitrary: buildSequencesOf(usualKinds, validObjects) },
    ...scenarios.map((arbitrary) => ({ weight: Math.ceil(16 / scenarios.length), arbitrary })),
  );
  return namespaces.length === 0
    ? sequences
    : fc
        .tuple(sequences, pickOne("default", "default", ...namespaces))
        .map(([sequence, namespace]) => moveSequence(sequence, namespace));
};

/**
 * Moves a sequence from `default` to `namespace`. If `namespace` is undefined, moves the sequence to a new namespace,
 * and adds a step that reads whether this namespace exists.
 */
const moveSequence = (sequence: RequestSequence, namespace: string | undefined): RequestSequence => {
  const { existingObject, kind } = sequence;
  const { namespaced } = { ...parityGeneratedKinds, ...scenarioOnlyKinds }[kind];
  if (existingObject !== undefined || sequence.namespace !== "default" || !namespaced) return sequence;
  if (namespace !== undefined) return { ...sequence, namespace };
  const { namespace: _, ...withoutNamespace } = sequence;
  return { ...withoutNamespace, steps: [...sequence.steps, { user: "admin", dryRun: false, verb: "look" }] };
};
