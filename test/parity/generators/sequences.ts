import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import type { RequestMatch } from "#lib/rule.ts";
import { createObjectGenerators, type ObjectGenerators } from "./object-generators.ts";
import { deletionStep, generateCreateStep } from "./scenario-parts.ts";
import {
  buildMergePatch,
  type GeneratedKind,
  handWrittenOnlyKinds,
  lastDeletionStep,
  parityGeneratedKinds,
  patchTypeGenerator,
  pickOne,
  type RequestSequence,
  requestOptions,
  type SequenceRequest,
  toPatch,
} from "./steps.ts";

/** Kinds that are not generated for every rule, because not every API server serves or stores them. */
const excludedKinds: readonly GeneratedKind[] = ["podgroups", "localsubjectaccessreviews"];
const every = (Object.keys(parityGeneratedKinds) as GeneratedKind[]).filter((kind) => !excludedKinds.includes(kind));

const buildChange = (kind: GeneratedKind, words: ObjectGenerators): Arbitrary<SequenceRequest> => {
  const { common, edits, buildObject, subresources } = words;
  const edit = fc.oneof(
    ...common.map((arbitrary) => ({ weight: 1, arbitrary })),
    ...edits[kind].map((arbitrary) => ({ weight: 2, arbitrary })),
  );
  const several = fc.array(edit, { minLength: 1, maxLength: 2 });
  const subs = Object.entries(subresources[kind]);
  return fc.oneof(
    {
      weight: 4,
      arbitrary: fc
        .tuple(requestOptions, several)
        .map(([asked, edits]): SequenceRequest => ({ ...asked, verb: "replace", edits })),
    },
    {
      weight: 5,
      arbitrary: fc
        .tuple(requestOptions, patchTypeGenerator, several)
        .map(
          ([asked, type, edits]): SequenceRequest => ({ ...asked, verb: "patch", type, body: toPatch(type, edits) }),
        ),
    },
    { weight: 1, arbitrary: generateCreateStep(buildObject(kind)) },
    { weight: 2, arbitrary: buildApply(kind, words) },
    { weight: 1, arbitrary: buildApply(kind, words, several.map(buildMergePatch)) },
    // A deletion may come before other steps, because an object with finalizers or a grace period can still be changed.
    { weight: 1, arbitrary: deletionStep },
    ...subs.flatMap(([subresource, edit]) => [
      {
        weight: 1,
        arbitrary: fc.tuple(requestOptions, edit).map(([asked, edit]): SequenceRequest => {
          return { ...asked, verb: "replace", subresource, edits: [edit] };
        }),
      },
      {
        weight: 1,
        arbitrary: fc.tuple(requestOptions, patchTypeGenerator, edit).map(([asked, type, edit]): SequenceRequest => {
          return { ...asked, verb: "patch", subresource, type, body: toPatch(type, [edit]) };
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
                words,
                edit.map((edit) => buildMergePatch([edit])),
              ).map((step) => ({ ...step, subresource })),
            },
          ]),
    ]),
    ...(kind === "pods" ? [{ weight: 1, arbitrary: binding }] : []),
  );
};

const binding: Arbitrary<SequenceRequest> = fc
  .tuple(requestOptions, fc.boolean())
  .map(([asked, evicts]): SequenceRequest => {
    return evicts
      ? { ...asked, verb: "create", subresource: "eviction", body: { apiVersion: "policy/v1", kind: "Eviction" } }
      : {
          ...asked,
          verb: "create",
          subresource: "binding",
          body: { apiVersion: "v1", kind: "Binding", target: { apiVersion: "v1", kind: "Node", name: "n1" } },
        };
  });

/** Builds a step in which one of two field managers applies an object, or a part of it, server-side. */
const buildApply = (
  kind: GeneratedKind,
  { buildObject }: ObjectGenerators,
  part?: Arbitrary<JsonMap>,
): Arbitrary<SequenceRequest> => {
  const { apiVersion, kind: name } = parityGeneratedKinds[kind];
  const body = part ? part.map((fields) => ({ apiVersion, kind: name, ...fields })) : buildObject(kind);
  return fc
    .tuple(requestOptions, body, pickOne("one", "other"), fc.boolean())
    .map(([asked, body, manager, force]): SequenceRequest => ({ ...asked, verb: "apply", manager, force, body }));
};

const buildSequence = (kind: GeneratedKind, words: ObjectGenerators): Arbitrary<RequestSequence> =>
  fc
    .record({
      generateName: fc.oneof({ weight: 7, arbitrary: pickOne(false) }, { weight: 1, arbitrary: pickOne(true) }),
      first: fc.oneof(
        { weight: 7, arbitrary: generateCreateStep(words.buildObject(kind)) },
        { weight: 1, arbitrary: buildApply(kind, words) },
      ),
      changes: fc.array(buildChange(kind, words), { maxLength: 4 }),
      last: lastDeletionStep,
    })
    .map(({ generateName, first, changes, last }): RequestSequence => {
      return { kind, namespace: "default", generateName, steps: [first, ...changes, last] };
    });

/**
 * The namespaces and the planned sequences that generated requests for a rule use.
 */
export interface SequenceGeneratorOptions {
  /**
   * More namespaces for the generated requests, besides `default`; undefined stands for a new namespace. A name that is
   * listed twice is chosen twice as often.
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
    resources.includes(kind) || (resources.includes("*") && every.includes(kind));
  const matched = (Object.keys(parityGeneratedKinds) as GeneratedKind[]).filter(isMatched);
  const [sound, odd] = [createObjectGenerators(false), createObjectGenerators(true)];
  const buildSequencesOf = (kinds: GeneratedKind[], words: ObjectGenerators) =>
    fc.oneof(...kinds.map((kind) => buildSequence(kind, words)));
  const concerned = matched.length > 0 ? matched : every;
  const sequences = fc.oneof(
    { weight: 12, arbitrary: buildSequencesOf(concerned, sound) },
    { weight: 4, arbitrary: buildSequencesOf(concerned, odd) },
    { weight: 2, arbitrary: buildSequencesOf(every, sound) },
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
  const { standing, kind } = sequence;
  if (
    standing !== undefined ||
    sequence.namespace !== "default" ||
    !{ ...parityGeneratedKinds, ...handWrittenOnlyKinds }[kind].namespaced
  )
    return sequence;
  if (namespace !== undefined) return { ...sequence, namespace };
  const { namespace: _, ...homeless } = sequence;
  return { ...homeless, steps: [...sequence.steps, { user: "admin", dryRun: false, verb: "look" }] };
};
