import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { isDeepStrictEqual, parseArgs } from "node:util";
import { createRandom } from "../../infra/testing/random.ts";
import { ApplyConfigurationError, applyConfiguration } from "../../lib/admission-policies/merge/merge.ts";
import { findSchema, type ObjectSchema } from "../../lib/admission-policies/merge/schemas.ts";
import type { JsonMap } from "../../lib/json.ts";
import { newestMinor } from "../control-plane/binaries.ts";
import { readOpenApiDocuments } from "../generate/openapi-types.ts";
import { generateDefinition, generatePair } from "./merge-generator.ts";
import { type MergeAnswer, startEvaluator, type UpstreamEvaluator } from "./upstream.ts";

// Compares the merge of ApplyConfiguration patches with kube-apiserver's packages on generated schemas and objects:
//
//   node infra/node.js test/cel/merge.ts --pairs 20000 --seed 1

/** The built-in kinds of which objects are generated. `path` names the OpenAPI document with the schema of the kind. */
const builtInKinds = [
  { path: "api/v1", group: "", version: "v1", kind: "Pod" },
  { path: "api/v1", group: "", version: "v1", kind: "Service" },
  { path: "api/v1", group: "", version: "v1", kind: "ConfigMap" },
  { path: "api/v1", group: "", version: "v1", kind: "PersistentVolume" },
  { path: "apis/apps/v1", group: "apps", version: "v1", kind: "Deployment" },
  { path: "apis/networking.k8s.io/v1", group: "networking.k8s.io", version: "v1", kind: "Ingress" },
];

/** How many kinds of generated CustomResourceDefinitions there are for each built-in kind. */
const definitionsPerKind = 8;

/**
 * The number of times that upstream merges a patch. The order of its errors is random; with so many tries, each error
 * should be the first one at least once.
 */
const mergesPerPatch = 40;

export interface MergeDifference {
  kind: string;
  object: unknown;
  patch: unknown;
  upstream: unknown;
  postern: unknown;
}

/** A kind: its schema for Postern, and the file from which the program with upstream's packages reads the schema. */
interface KindSchema {
  file: string;
  schema: ObjectSchema;
  typeMeta: { apiVersion: string; kind: string };
}

/** Writes the schemas of all kinds to a folder: those of built-in kinds, and those of generated definitions. */
const writeKindSchemas = async (folder: string, seed: number): Promise<KindSchema[]> => {
  const { schemas } = await readOpenApiDocuments();
  const write = async (name: string, content: unknown) => {
    const file = join(folder, `${name.replaceAll("/", "-")}.json`);
    await writeFile(file, JSON.stringify(content));
    return file;
  };
  const kindSchemas: KindSchema[] = [];
  for (const { path, ...gvk } of builtInKinds) {
    const schema = findSchema(gvk, []);
    if (!schema) throw new Error(`${gvk.kind} has no schema`);
    const typeMeta = { apiVersion: path.replace(/^apis?\//, ""), kind: gvk.kind };
    kindSchemas.push({ file: await write(path, schemas[path]), schema, typeMeta });
  }
  for (let index = 0; index < builtInKinds.length * definitionsPerKind; index++) {
    const definition = generateDefinition(seed * 1000 + index);
    const schema = findSchema({ group: "example.org", version: "v1", kind: "Thing" }, [definition]);
    if (!schema) throw new Error("the generated definition has no schema");
    const file = await write(`definition-${index}`, definition);
    kindSchemas.push({ file, schema, typeMeta: { apiVersion: "example.org/v1", kind: "Thing" } });
  }
  return kindSchemas;
};

/** Returns upstream's answers to expressions whose values are patches of a pod. */
export const evaluatePatches = async (
  evaluator: UpstreamEvaluator,
  pod: JsonMap,
  expressions: readonly string[],
): Promise<MergeAnswer[]> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-merge-"));
  try {
    const schema = join(folder, "v1.json");
    await writeFile(schema, JSON.stringify((await readOpenApiDocuments()).schemas["api/v1"]));
    return await evaluator.merge(
      expressions.map((expression) => ({ schema, object: pod, expression })),
      /* mergesPerPatch */ 1,
    );
  } finally {
    await rm(folder, { recursive: true });
  }
};

/** Returns Postern's answer: the merged object, or the error. */
const applyPatch = (schema: ObjectSchema, object: JsonMap, patch: JsonMap): { value?: unknown; error?: string } => {
  try {
    return { value: applyConfiguration(schema, object, patch) };
  } catch (error) {
    if (error instanceof ApplyConfigurationError) return { error: error.message };
    throw error;
  }
};

/** Sorts the parts of an error, because their order may vary. */
const sortParts = (error: string): string =>
  error
    .split(/\n|(?<=structs: )|, (?=\.)/)
    .sort()
    .join("\n");

/** Upstream's error for a field that the schema lacks. Postern accepts such a field, because a cluster may be newer. */
const unknownField = /^error applying patch: failed to convert original object .*: field not declared in schema/s;

/** Reports whether Postern's answer equals one of upstream's answers. The parts of an error may have any order. */
const isSameAnswer = (upstream: MergeAnswer, postern: { value?: unknown; error?: string }): boolean => {
  if (postern.error === undefined || upstream.error === undefined)
    return postern.error === upstream.error && isDeepStrictEqual(postern.value, upstream.value);
  const parts = sortParts(postern.error);
  return listErrors(upstream).some((error) => sortParts(error) === parts);
};

/** Returns upstream's errors for a patch. Each repetition of the merge may have another error, at random. */
const listErrors = ({ error = "", others = [] }: MergeAnswer) => [error, ...others];

export interface MergeComparison {
  /** Of the pairs of an object and a patch, upstream merges `values`, and returns an error for `errors`. */
  values: number;
  errors: number;
  /** Pairs that differ only because upstream refuses objects with fields that its schema doesn't have. */
  knownDifferences: number;
  differences: MergeDifference[];
}

/** Compares Postern's and upstream's merges of this number of generated objects and patches. */
export const compareMerges = async (
  evaluator: UpstreamEvaluator,
  { pairs, seed }: { pairs: number; seed: number },
): Promise<MergeComparison> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-merge-"));
  try {
    const kindSchemas = await writeKindSchemas(folder, seed);
    const builtIn = kindSchemas.slice(0, builtInKinds.length);
    const generated = kindSchemas.slice(builtInKinds.length);
    const random = createRandom(seed);
    const comparison: MergeComparison = { values: 0, errors: 0, knownDifferences: 0, differences: [] };
    for (let done = 0; done < pairs; ) {
      const tasks = Array.from({ length: Math.min(500, pairs - done) }, (_, index) => {
        const { file, schema, typeMeta } = random.pick((done + index) % 2 === 0 ? builtIn : generated);
        return { file, schema, ...generatePair(random, schema, typeMeta) };
      });
      done += tasks.length;
      // Upstream returns one of its errors at random, so it merges each patch several times to return all of them.
      const answers = await evaluator.merge(
        tasks.map(({ file, object, patch }) => ({ schema: file, object, patch })),
        mergesPerPatch,
      );
      for (const [index, { file, schema, patch }] of tasks.entries()) {
        const upstream = answers[index] as MergeAnswer;
        // Upstream and Postern patch `upstream.object`: the task's object as kube-apiserver sends it to webhooks.
        const postern = applyPatch(schema, upstream.object, patch);
        if (upstream.error === undefined) comparison.values++;
        else comparison.errors++;
        if (isSameAnswer(upstream, postern)) continue;
        const { object, ...answer } = upstream;
        // In a known difference, upstream refuses a field that its schema lacks, and Postern accepts it.
        if (listErrors(upstream).some((error) => unknownField.test(error))) comparison.knownDifferences++;
        else comparison.differences.push({ kind: file, object, patch, upstream: answer, postern });
      }
    }
    return comparison;
  } finally {
    await rm(folder, { recursive: true });
  }
};

if (import.meta.main) {
  const { values } = parseArgs({
    options: {
      pairs: { type: "string", default: "20000" },
      seed: { type: "string", default: "1" },
      examples: { type: "string", default: "3" },
    },
  });
  const evaluator = await startEvaluator(newestMinor);
  const start = Date.now();
  const comparison = await compareMerges(evaluator, { pairs: Number(values.pairs), seed: Number(values.seed) });
  const { differences, values: merged, errors, knownDifferences } = comparison;
  const shortest = differences.toSorted((left, right) => JSON.stringify(left).length - JSON.stringify(right).length);
  for (const one of shortest.slice(0, Number(values.examples)))
    process.stdout.write(`${JSON.stringify(one, null, 1)}\n`);
  process.stdout.write(
    `${values.pairs} pairs in ${Math.round((Date.now() - start) / 1000)} s: ${merged} values, ${errors} errors, ` +
      `${differences.length} differences, ${knownDifferences} known\n`,
  );
  process.exitCode = differences.length > 0 ? 1 : 0;
  await evaluator.stop();
}
