import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, hasKnownDefaults } from "../../infra/apiserver/defaults/defaults.ts";
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { startSharedKubernetes } from "../kubernetes.ts";
import { formatAnswerDiff } from "../parity/compare.ts";
import { createUsualObject } from "../parity/generators/object-generators.ts";
import { needs } from "../parts.ts";
import { readValidObjects } from "../valid-objects.ts";

const { POSTERN_RUNS, POSTERN_SEED } = process.env;
const kinds = buildKindIndex([]);

describe("an object with its defaults", await needs("Kubernetes module"), () => {
  /** Returns the difference between Postern's object and that of Kubernetes' handlers; undefined if they are equal. */
  const compare = async (given: KubernetesObject): Promise<string | undefined> => {
    const { apiVersion = "", kind = "", metadata } = given;
    const namespace = kinds.of(apiVersion, kind)?.namespaced ? { namespace: "default" } : {};
    const object: KubernetesObject = JSON.parse(JSON.stringify({ ...given, metadata: { ...metadata, ...namespace } }));
    const filled = fillDefaults(object);
    const newestMinor = undefined;
    const module = await startSharedKubernetes(newestMinor);
    const handled = await module?.handle({
      verb: "create",
      until: "admission",
      apiVersion,
      kind,
      ...namespace,
      fieldValidation: "Warn",
      object: JSON.stringify(object),
    });
    // If the handlers can't decode the object, Postern must have found a misfit.
    let [wanted, actual]: object[] = [{ isDecodable: false }, { isDecodable: filled.decodingErrors.length === 0 }];
    if (handled?.status === undefined) {
      wanted = { object: handled?.object, warnings: handled?.warnings.toSorted() };
      actual = {
        object: filled.object,
        warnings: filled.unknownFields.map((field) => `unknown field "${field}"`).sort(),
      };
    }
    if (isDeepStrictEqual(actual, wanted)) return undefined;
    const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });
    return `${formatAnswerDiff(toAnswer(wanted), toAnswer(actual))}\n${filled.decodingErrors} ${handled?.status?.message}\n${JSON.stringify(object)}`;
  };
  const compareAll = async (objects: readonly KubernetesObject[], seed?: number) => {
    const different: string[] = [];
    for (const object of objects) {
      const difference = await compare(object);
      if (difference !== undefined) different.push(difference);
    }
    assert.deepEqual(different.slice(0, 3), [], `${different.length} of ${objects.length} with seed ${seed}`);
  };

  it("an object with its defaults equals the object of Kubernetes' handlers, for a valid object of each kind", () =>
    compareAll(readValidObjects().filter((object) => hasKnownDefaults(object))));

  const runs = Number(POSTERN_RUNS ?? 300);
  const seed = Number(POSTERN_SEED ?? randomInt(2 ** 31));
  for (const [what, isOdd] of [
    ["generated objects", false],
    ["generated objects with mistakes", true],
  ] as const)
    it(`an object with its defaults equals the object of Kubernetes' handlers, for ${what}`, () => {
      const objects = fc.sample(createUsualObject(isOdd), { numRuns: runs, seed });
      return compareAll(objects as KubernetesObject[], seed);
    });
});
