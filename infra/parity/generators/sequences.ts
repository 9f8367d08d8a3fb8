import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import type { RequestMatch } from "#lib/rule.ts";
import {
  asked,
  asPatch,
  type Kind,
  kinds,
  lastStep,
  merged,
  one,
  patchType,
  planned,
  type Sequence,
  type Step,
} from "./steps.ts";
import { creation, deletion } from "./stories.ts";
import { type Vocabulary, vocabulary } from "./vocabulary.ts";

/** Not served by every API server, or never kept. */
const special: readonly Kind[] = ["podgroups", "localsubjectaccessreviews"];
const every = (Object.keys(kinds) as Kind[]).filter((kind) => !special.includes(kind));

const changeOf = (kind: Kind, words: Vocabulary): Arbitrary<Step> => {
  const { common, edits, objectOf, subresources } = words;
  const edit = fc.oneof(
    ...common.map((arbitrary) => ({ weight: 1, arbitrary })),
    ...edits[kind].map((arbitrary) => ({ weight: 2, arbitrary })),
  );
  const several = fc.array(edit, { minLength: 1, maxLength: 2 });
  const subs = Object.entries(subresources[kind]);
  return fc.oneof(
    {
      weight: 4,
      arbitrary: fc.tuple(asked, several).map(([asked, edits]): Step => ({ ...asked, verb: "replace", edits })),
    },
    {
      weight: 5,
      arbitrary: fc
        .tuple(asked, patchType, several)
        .map(([asked, type, edits]): Step => ({ ...asked, verb: "patch", type, body: asPatch(type, edits) })),
    },
    { weight: 1, arbitrary: creation(objectOf(kind)) },
    { weight: 2, arbitrary: applyOf(kind, words) },
    { weight: 1, arbitrary: applyOf(kind, words, several.map(merged)) },
    // What has finalizers or a grace stays, and can be changed.
    { weight: 1, arbitrary: deletion },
    ...subs.flatMap(([subresource, edit]) => [
      {
        weight: 1,
        arbitrary: fc.tuple(asked, edit).map(([asked, edit]): Step => {
          return { ...asked, verb: "replace", subresource, edits: [edit] };
        }),
      },
      {
        weight: 1,
        arbitrary: fc.tuple(asked, patchType, edit).map(([asked, type, edit]): Step => {
          return { ...asked, verb: "patch", subresource, type, body: asPatch(type, [edit]) };
        }),
      },
      // A scale is of another kind; it is never applied.
      ...(subresource === "scale"
        ? []
        : [
            {
              weight: 1,
              arbitrary: applyOf(
                kind,
                words,
                edit.map((edit) => merged([edit])),
              ).map((step) => ({ ...step, subresource })),
            },
          ]),
    ]),
    ...(kind === "pods" ? [{ weight: 1, arbitrary: binding }] : []),
  );
};

const binding: Arbitrary<Step> = fc.tuple(asked, fc.boolean()).map(([asked, evicts]): Step => {
  return evicts
    ? { ...asked, verb: "create", subresource: "eviction", body: { apiVersion: "policy/v1", kind: "Eviction" } }
    : {
        ...asked,
        verb: "create",
        subresource: "binding",
        body: { apiVersion: "v1", kind: "Binding", target: { apiVersion: "v1", kind: "Node", name: "n1" } },
      };
});

/** Applies all of an object or a part of it, as several managers of one field do. */
const applyOf = (kind: Kind, { objectOf }: Vocabulary, part?: Arbitrary<JsonMap>): Arbitrary<Step> => {
  const { apiVersion, kind: name } = kinds[kind];
  const body = part ? part.map((fields) => ({ apiVersion, kind: name, ...fields })) : objectOf(kind);
  return fc
    .tuple(asked, body, one("one", "other"), fc.boolean())
    .map(([asked, body, manager, force]): Step => ({ ...asked, verb: "apply", manager, force, body }));
};

const sequenceOf = (kind: Kind, words: Vocabulary): Arbitrary<Sequence> =>
  fc
    .record({
      generateName: fc.oneof({ weight: 7, arbitrary: one(false) }, { weight: 1, arbitrary: one(true) }),
      first: fc.oneof(
        { weight: 7, arbitrary: creation(words.objectOf(kind)) },
        { weight: 1, arbitrary: applyOf(kind, words) },
      ),
      changes: fc.array(changeOf(kind, words), { maxLength: 4 }),
      last: lastStep,
    })
    .map(({ generateName, first, changes, last }): Sequence => {
      return { kind, namespace: "default", generateName, steps: [first, ...changes, last] };
    });

/** What to ask about beside what a rule matches, and where. */
export interface Topics {
  /** Namespaces beside `default`, each as often as it is named; undefined is one of the sequence's own. */
  namespaces?: readonly (string | undefined)[];
  /** Sequences with a plan, where chance alone would seldom come to the point. */
  scenarios?: readonly Arbitrary<Sequence>[];
}

/** Requests for a rule: mostly about what it matches, and some about everything else. */
export const sequencesFor = (
  matches: readonly RequestMatch[],
  { namespaces = [], scenarios = [] }: Topics = {},
): Arbitrary<Sequence> => {
  const resources = matches.flatMap(({ resources }) => resources.map((path) => path.split("/")[0]));
  const isMatched = (kind: Kind) => resources.includes(kind) || (resources.includes("*") && every.includes(kind));
  const matched = (Object.keys(kinds) as Kind[]).filter(isMatched);
  const [sound, odd] = [vocabulary(false), vocabulary(true)];
  const about = (kinds: Kind[], words: Vocabulary) => fc.oneof(...kinds.map((kind) => sequenceOf(kind, words)));
  const concerned = matched.length > 0 ? matched : every;
  const sequences = fc.oneof(
    { weight: 12, arbitrary: about(concerned, sound) },
    { weight: 4, arbitrary: about(concerned, odd) },
    { weight: 2, arbitrary: about(every, sound) },
    ...scenarios.map((arbitrary) => ({ weight: Math.ceil(16 / scenarios.length), arbitrary })),
  );
  return namespaces.length === 0
    ? sequences
    : fc
        .tuple(sequences, one("default", "default", ...namespaces))
        .map(([sequence, namespace]) => moved(sequence, namespace));
};

/** The same steps in another namespace, unless they name one. The last step reads whether the namespace exists. */
const moved = (sequence: Sequence, namespace: string | undefined): Sequence => {
  const { standing, kind } = sequence;
  if (standing !== undefined || sequence.namespace !== "default" || !{ ...kinds, ...planned }[kind].namespaced)
    return sequence;
  if (namespace !== undefined) return { ...sequence, namespace };
  const { namespace: _, ...homeless } = sequence;
  return { ...homeless, steps: [...sequence.steps, { user: "admin", dryRun: false, verb: "look" }] };
};
