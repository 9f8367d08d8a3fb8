import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import {
  type FieldEdit,
  generateFieldEdit,
  lastDeletionStep,
  pickOne,
  type RequestSequence,
  type RequestUser,
  requestOptions,
  type SequenceRequest,
  toPatch,
} from "./steps.ts";

// Builds steps and sequences of requests, from which scenarios.ts composes the scenario of each plugin.

/** Builds a step that edits an object, or one of its subresources, by a PUT (`replace`) or by a patch. */
export const buildEditStep = (edits: Arbitrary<FieldEdit[]>, subresource?: string): Arbitrary<SequenceRequest> =>
  fc
    .tuple(requestOptions, edits, pickOne("replace" as const, ...(["json", "merge", "strategic-merge"] as const)))
    .map(([options, edits, method]) => {
      const target = { ...options, ...(subresource && { subresource }) };
      if (method === "replace") return { ...target, verb: "replace", edits };
      return { ...target, verb: "patch", type: method, body: toPatch(method, edits) };
    });
/** Turns a generator of one edit (an Arbitrary of fast-check) into a generator of lists with one edit. */
export const wrapInList = (edit: Arbitrary<FieldEdit>) => edit.map((one) => [one]);
export const generateEditLists = (...edits: Arbitrary<FieldEdit>[]) => fc.tuple(...edits);
/** Generates a step that changes a label of the sequence's object. */
export const labelSteps = buildEditStep(wrapInList(generateFieldEdit("metadata.labels.app", pickOne("x", "y"))));

/** Replaces the user of a generated step by one of these users. */
export const assignUser = (
  users: Arbitrary<RequestUser>,
  step: Arbitrary<SequenceRequest>,
): Arbitrary<SequenceRequest> => fc.tuple(step, users).map(([step, user]) => ({ ...step, user }));

/** Builds a step that sends one of these edits as a patch of one of these types. */
export const buildPatchStep = (
  types: Arbitrary<"json" | "merge">,
  subresource: string | undefined,
  ...edits: Arbitrary<FieldEdit>[]
): Arbitrary<SequenceRequest> =>
  fc.tuple(requestOptions, fc.oneof(...edits), types).map(([options, edit, chosenType]): SequenceRequest => {
    // A JSON patch can't remove a missing field, so every removal is sent as a merge patch.
    const type = "value" in edit ? chosenType : "merge";
    return { ...options, ...(subresource && { subresource }), verb: "patch", type, body: toPatch(type, [edit]) };
  });

export const generateCreateStep = (body: Arbitrary<JsonMap>, subresource?: string): Arbitrary<SequenceRequest> =>
  fc
    .tuple(requestOptions, body)
    .map(
      ([options, body]): SequenceRequest => ({ ...options, ...(subresource && { subresource }), verb: "create", body }),
    );

/** Generates a step that deletes the object, at once or gracefully, in some cases as a dry run. */
export const deletionStep: Arbitrary<SequenceRequest> = fc
  .tuple(requestOptions, fc.boolean())
  .map(([options, graceful]) => ({ ...options, verb: "delete", graceful }));

/** A step in which a user with every right deletes the object at once, without a grace period. */
export const deleteNowStep = pickOne<SequenceRequest>({
  user: "admin",
  dryRun: false,
  verb: "delete",
  graceful: false,
});

/**
 * Builds sequences that create an object, change it in some of these ways, and delete it. The options replace the
 * deletion (`last`) and fields of the sequences.
 */
export const buildScenario = (
  kind: RequestSequence["kind"],
  first: Arbitrary<SequenceRequest>,
  changes: Arbitrary<SequenceRequest>[],
  { last = lastDeletionStep, ...fields }: { last?: Arbitrary<SequenceRequest> } & Partial<RequestSequence> = {},
): Arbitrary<RequestSequence> =>
  fc
    .tuple(first, changes.length > 0 ? buildSteps(changes) : pickOne([]), last, pickOne(false, false, false, true))
    .map(([first, changes, last, generateName]) => {
      return { kind, namespace: "default", generateName, steps: [first, ...changes, last], ...fields };
    });

/** Builds sequences of dry-run requests that change an existing object in some of these ways. */
export const buildDryRunScenario = (
  kind: RequestSequence["kind"],
  existingNames: string[],
  changes: Arbitrary<SequenceRequest>[],
  namespace = "default",
): Arbitrary<RequestSequence> =>
  fc
    .tuple(pickOne(...existingNames), buildSteps(changes))
    .map(([existingObject, steps]) => ({ kind, namespace, existingObject, generateName: false, steps }));

const buildSteps = (changes: Arbitrary<SequenceRequest>[]) =>
  fc.array(fc.oneof(...changes), { minLength: 1, maxLength: 4 });
