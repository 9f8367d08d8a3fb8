import fc, { type Arbitrary } from "fast-check";
import type { JsonMap } from "#lib/json.ts";
import { asked, asPatch, at, type Edit, lastStep, one, type Sequence, type Step, type User } from "./steps.ts";

// Parts of sequences with a plan, of which the scenes of plugins are made.

/** Edits an object by a PUT or by a patch. */
export const edit = (edits: Arbitrary<Edit[]>, subresource?: string): Arbitrary<Step> =>
  fc
    .tuple(asked, edits, one("replace" as const, ...(["json", "merge", "strategic-merge"] as const)))
    .map(([asked, edits, how]) => {
      const place = subresource && { subresource };
      return how === "replace"
        ? { ...asked, ...place, verb: "replace", edits }
        : { ...asked, ...place, verb: "patch", type: how, body: asPatch(how, edits) };
    });
export const alone = (edit: Arbitrary<Edit>) => edit.map((one) => [one]);
export const together = (...edits: Arbitrary<Edit>[]) => fc.tuple(...edits);
export const label = edit(alone(at("metadata.labels.app", one("x", "y"))));

/** Has one of these users do a step. */
export const by = (users: Arbitrary<User>, step: Arbitrary<Step>): Arbitrary<Step> =>
  fc.tuple(step, users).map(([step, user]) => ({ ...step, user }));

/** Makes one of these edits, by a patch of one of these types. */
export const patch = (
  types: Arbitrary<"json" | "merge">,
  subresource: string | undefined,
  ...edits: Arbitrary<Edit>[]
): Arbitrary<Step> =>
  fc.tuple(asked, fc.oneof(...edits), types).map(([asked, edit, given]): Step => {
    // A JSON patch takes nothing away that may not be there.
    const type = "value" in edit ? given : "merge";
    return { ...asked, ...(subresource && { subresource }), verb: "patch", type, body: asPatch(type, [edit]) };
  });

export const creation = (body: Arbitrary<JsonMap>, subresource?: string): Arbitrary<Step> =>
  fc
    .tuple(asked, body)
    .map(([asked, body]): Step => ({ ...asked, ...(subresource && { subresource }), verb: "create", body }));

export const deletion: Arbitrary<Step> = fc
  .tuple(asked, fc.boolean())
  .map(([asked, graceful]) => ({ ...asked, verb: "delete", graceful }));

/** Deletes an object at once, as a user who may do so. */
export const removal = one<Step>({ user: "admin", dryRun: false, verb: "delete", graceful: false });

/** An object is created, changed in some of these ways, and deleted. */
export const story = (
  kind: Sequence["kind"],
  first: Arbitrary<Step>,
  changes: Arbitrary<Step>[],
  { last = lastStep, ...more }: { last?: Arbitrary<Step> } & Partial<Sequence> = {},
): Arbitrary<Sequence> =>
  fc
    .tuple(first, changes.length > 0 ? steps(changes) : one([]), last, one(false, false, false, true))
    .map(([first, changes, last, generateName]) => {
      return { kind, namespace: "default", generateName, steps: [first, ...changes, last], ...more };
    });

/** An object that is there already is changed in some of these ways, as a dry run. */
export const trial = (
  kind: Sequence["kind"],
  standing: string[],
  changes: Arbitrary<Step>[],
  namespace = "default",
): Arbitrary<Sequence> =>
  fc
    .tuple(one(...standing), steps(changes))
    .map(([standing, steps]) => ({ kind, namespace, standing, generateName: false, steps }));

const steps = (changes: Arbitrary<Step>[]) => fc.array(fc.oneof(...changes), { minLength: 1, maxLength: 4 });
