import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc, { type Arbitrary } from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import olderTables from "../../infra/apiserver/defaults/older-types.json" with { type: "json" };
import table from "../../infra/apiserver/defaults/types.json" with { type: "json" };
import { selectMinor } from "../../infra/apiserver/minors.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { chooseMinors } from "../choices.ts";
import { listPlugins, requireBinaries, webhookPlugins } from "../control-plane/binaries.ts";
import type { TestClusterClient, TestClusterResponse } from "../control-plane/client.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { formatAnswerDiff } from "../parity/compare.ts";
import { createUsualObject } from "../parity/generators/object-generators.ts";
import { openScriptedWebhookEndpoints } from "../parity/scripted-endpoints.ts";
import { needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { createObserver, registerWitness } from "./witness.ts";

// Compares the defaults that infra/apiserver sets with those in the objects that a real API server sends to webhooks,
// in the newest minor of Kubernetes or in another one. All minors get objects with the fields of the newest minor.
type Fields = Record<string, unknown>;
/** For each struct of Kubernetes, such as PodSpec, the types of its fields by their names. */
const fieldTypes: Record<string, Record<string, string>> = table.types;

// Values for generated objects from defaults.test.yaml, the members that most objects get, and the cluster-wide kinds.
const { valuesByMember, amounts, frequentMembers, clusterWide } = readRows<{
  valuesByMember: Record<string, unknown[]>;
  amounts: (string | number)[];
  frequentMembers: string[];
  clusterWide: string[];
}>(import.meta.filename);
const resources = ["cpu", "memory", "hugepages-2Mi", "example.com/gpu"];
const words = ["", "a", "b", "app:1"];

/**
 * Generates values of a type, as infra/apiserver/defaults/types.json writes the type: "[Container" is a list of
 * containers, "{quantity" a map of quantities, "?" marks an optional member. `member` is the field's name. If
 * `mayBeInvalid` is true, some values are invalid. Values at a large `depth` are small.
 */
const createArbitrary = (type: string, member: string, depth: number, mayBeInvalid: boolean): Arbitrary<unknown> => {
  const valid = createArbitraryOfType(type.replace("?", ""), member, depth, mayBeInvalid);
  if (!mayBeInvalid) return valid;
  const invalid = fc.constantFrom<unknown>(null, "x", 7, [], {}, true, [null]);
  return fc.oneof({ weight: 60, arbitrary: valid }, { weight: 1, arbitrary: invalid });
};

/** Generates values with the JSON type of `type`; with `mayBeInvalid`, quantities and inner values may be invalid. */
const createArbitraryOfType = (
  type: string,
  member: string,
  depth: number,
  mayBeInvalid: boolean,
): Arbitrary<unknown> => {
  // `*TYPE` may be absent, `[TYPE` is a list, and `{TYPE` is a map with text keys.
  const [first, rest] = [type[0], type.slice(1)];
  const lengths = { maxLength: depth > 4 ? 1 : 2 };
  if (first === "*") return createArbitrary(rest, member, depth, mayBeInvalid);
  if (first === "[") return fc.array(createArbitrary(rest, member, depth, mayBeInvalid), lengths);
  if (first === "{") {
    const keys = fc.constantFrom(
      ...(rest === "quantity" ? resources : ["a", "example.com/b", "pod.beta.kubernetes.io/init-containers"]),
    );
    return fc.dictionary(keys, createArbitrary(rest, "", depth, mayBeInvalid), { maxKeys: 2 });
  }
  if (type === "ObjectMeta" && depth === 1)
    return createStructArbitrary("ObjectMeta", depth, mayBeInvalid, ["labels", "annotations", "finalizers"]);
  const likelyValues = valuesByMember[member];
  if (likelyValues && (type === "text" || type === "flag")) return fc.constantFrom(...likelyValues);
  // A type that isn't one of these keys is the name of a struct.
  const scalars: Record<string, Arbitrary<unknown>> = {
    text: fc.constantFrom(...words),
    flag: fc.boolean(),
    number: fc.constantFrom(0, 1, 2, -1, 80),
    // The amounts "" and "one" aren't valid quantities.
    quantity: fc.constantFrom(
      ...(mayBeInvalid ? amounts : amounts.filter((amount) => amount !== "" && amount !== "one")),
    ),
    // A number or a text, such as a port.
    either: fc.constantFrom<unknown>(0, "", 80, "http", "25%"),
    bytes: fc.constantFrom("", "YQ==", "YQ\n==\n"),
    time: fc.constantFrom("2026-11-01T00:00:00Z", "2026-11-01T01:02:03.456+02:00"),
    microtime: fc.constantFrom("2026-11-01T00:00:00.123456Z", "2026-11-01T01:02:03.000000+02:00"),
    any: fc.constant({}),
  };
  return scalars[type] ?? createStructArbitrary(type, depth, mayBeInvalid);
};

/** Returns an arbitrary for objects of a struct, with some of its members, or only of those that `only` lists. */
const createStructArbitrary = (
  name: string,
  depth: number,
  mayBeInvalid: boolean,
  only?: string[],
): Arbitrary<Fields> => {
  const members = Object.entries(fieldTypes[name] ?? {}).filter(([member]) => only?.includes(member) ?? true);
  /** Returns the probability that an object has the member. */
  const getChance = (member: string): number => {
    if (frequentMembers.includes(member)) return 0.85;
    if (depth > 6) return 0.06;
    return members.length > 15 ? 0.2 : 0.45;
  };
  return fc
    .array(fc.double({ min: 0, max: 1, noNaN: true }), { minLength: members.length + 1, maxLength: members.length + 1 })
    .chain((dice) => {
      const chosen = members.filter(([member], index) => (dice[index] ?? 1) < getChance(member));
      const record = Object.fromEntries(
        chosen.map(([member, type]) => [member, createArbitrary(type, member, depth + 1, mayBeInvalid)]),
      );
      const hasUnknownField = mayBeInvalid && (dice[members.length] ?? 1) < 0.02;
      return fc.record({ ...record, ...(hasUnknownField && { [`${name.toLowerCase()}X`]: fc.constant(1) }) });
    });
};

const listKinds = (minor: string) =>
  Object.entries<Record<string, string>>(selectMinor(table, olderTables, minor).kinds).flatMap(([apiVersion, kinds]) =>
    Object.entries(kinds).map(([kind, type]) => ({ apiVersion, kind, type })),
  );
const formPlural = (kind: string): string => {
  if (/(s|x)$/.test(kind)) return `${kind}es`;
  return kind.endsWith("y") ? `${kind.slice(0, -1)}ies` : `${kind}s`;
};
/** Returns the path for creations of a kind as a dry run. */
const getPath = (apiVersion: string, kind: string) => {
  const root = apiVersion.includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
  const namespacePath = clusterWide.includes(kind) ? "" : "/namespaces/default";
  return `${root}${namespacePath}/${formPlural(kind.toLowerCase())}?dryRun=All&fieldValidation=Warn`;
};

/** Generates objects of all kinds with a known type. If `mayBeInvalid` is true, some of their values are invalid. */
const createAnyObject = (minor: string, mayBeInvalid: boolean): Arbitrary<Fields> => {
  const kinds = listKinds(minor);
  // Usual kinds occur twice in the list, so that they are chosen twice as often.
  const usualKinds = kinds.filter(({ kind }) => ["Pod", "Deployment", "Service", "Job"].includes(kind));
  return fc
    .constantFrom(...kinds, ...usualKinds)
    .chain(({ apiVersion, kind, type }) =>
      createStructArbitrary(type, 0, mayBeInvalid).map((fields): Fields => ({ ...fields, apiVersion, kind })),
    );
};

/** Generates Pods and Deployments whose annotations and resources the API server changes after mutating webhooks. */
const createObjectChangedAfterWebhooks = (): Arbitrary<Fields> => {
  const pickOrOmit = <T>(...values: T[]) => fc.constantFrom(undefined, ...values);
  const amounts = {
    cpu: pickOrOmit("1", "500m", "3"),
    memory: pickOrOmit("1Gi", "1073741824"),
    "hugepages-2Mi": pickOrOmit("4Mi"),
  };
  const resources = fc.record({ limits: fc.record(amounts), requests: fc.record(amounts) });
  const container = fc
    .tuple(fc.record(amounts), pickOrOmit("Always"))
    .map(([limits, restartPolicy]) => ({ image: "app:1", resources: { limits }, restartPolicy }));
  const spec = fc
    .tuple(
      fc.option(resources),
      fc.array(container, { minLength: 1, maxLength: 3 }),
      fc.array(container, { maxLength: 2 }),
    )
    .map(([resources, containers, initContainers]) => ({
      ...(resources && { resources }),
      containers: containers.map(({ restartPolicy: _, ...rest }, index) => ({ ...rest, name: `c${index}` })),
      initContainers: initContainers.map((rest, index) => ({ ...rest, name: `i${index}` })),
    }));
  const annotations = pickOrOmit({ "pod.beta.kubernetes.io/init-containers": "a", note: "b" });
  const labels = { app: "a" };
  return fc.tuple(spec, annotations, fc.boolean()).map(([spec, annotations, isPod]) =>
    isPod
      ? { apiVersion: "v1", kind: "Pod", metadata: { annotations }, spec }
      : {
          apiVersion: "apps/v1",
          kind: "Deployment",
          spec: { selector: { matchLabels: labels }, template: { metadata: { labels, annotations }, spec } },
        },
  );
};

/** Returns the fields that the API server changes after the mutating webhooks: a pod's annotations and resources. */
const selectFieldsChangedAfterWebhooks = ({ kind, metadata, spec }: Fields) => {
  const { template, jobTemplate } = Object(spec);
  const pod = kind === "Pod" ? { metadata, spec } : Object(template ?? Object(jobTemplate).spec?.template);
  return { annotations: Object(pod.metadata).annotations, resources: Object(pod.spec).resources };
};

const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });

const { POSTERN_RUNS } = process.env;

for (const minor of chooseMinors({ largeRun: POSTERN_RUNS, suiteGroup: 1 }))
  describe(`an object with defaults of Kubernetes ${minor}`, await needsApiServer(minor), () => {
    let folder: string;
    let endpoints: Awaited<ReturnType<typeof openScriptedWebhookEndpoints>>;
    let cluster: TestCluster;
    let admin: TestClusterClient;
    /** The objects that the mutating and the validating webhook got, by name. */
    const seenObjects = new Map<string, Fields>();
    const validated = new Map<string, Fields>();

    before(async () => {
      const binaries = await requireBinaries(minor);
      folder = await mkdtemp(join(tmpdir(), "postern-defaults-"));
      const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
      endpoints = await openScriptedWebhookEndpoints(certificate, {
        witness: createObserver(seenObjects),
        validated: createObserver(validated),
      });
      const disable = (await listPlugins(binaries)).defaultOn.filter((plugin) => !webhookPlugins.includes(plugin));
      cluster = await bootCluster(binaries, { disable });
      admin = cluster.admin;
      await registerWitness(admin, endpoints.url, certificate.ca, seenObjects);
      const kind = "ValidatingWebhookConfiguration";
      await registerWitness(admin, endpoints.url, certificate.ca, validated, kind, "validated");
    });
    after(async () => {
      await Promise.all([cluster, endpoints].map((server) => server?.stop()));
      await rm(folder, { recursive: true, force: true });
    });

    /** Returns the API server's verdict, and the difference from our defaults if there is one. */
    const compare = async (given: Fields, name: string): Promise<[verdict: string, difference?: string]> => {
      const { apiVersion, kind } = given;
      const namespace = clusterWide.includes(String(kind)) ? {} : { namespace: "default" };
      const namedObject = { ...given, metadata: { ...Object(given.metadata), name, ...namespace } };
      const object = JSON.parse(JSON.stringify(namedObject));
      const before = structuredClone(object);
      const filled = fillDefaults(object, minor);
      assert.deepEqual(object, before, "fillDefaults doesn't change the given object");
      const answer = await create(getPath(String(apiVersion), String(kind)), object);
      const seen = seenObjects.get(name);
      const verdict = answer.code === 201 ? "admitted" : seen ? "invalid" : "refused";
      const context = `${JSON.stringify(object)}, answered ${answer.code} ${answer.body.message}`;
      const { managedFields: _, ...metadata } = Object(seen?.metadata);
      const unknownFields = answer.warnings.flatMap((text) => /^unknown field "(.*)"$/.exec(text)?.[1] ?? []);
      // The API server limits the total length of warnings, so it reports only some of many unknown fields.
      const isComplete = filled.unknownFields.join().length < 2000;
      const ourUnknownFields = isComplete
        ? filled.unknownFields
        : unknownFields.filter((field) => filled.unknownFields.includes(field));
      const wanted = seen
        ? { ...seen, metadata, unknownFields: unknownFields.sort() }
        : { refused: 400, hasMisfits: true };
      const actual = seen
        ? { ...filled.object, unknownFields: ourUnknownFields.toSorted() }
        : { refused: answer.code, hasMisfits: filled.decodingErrors.length > 0 };
      if (isDeepStrictEqual(actual, wanted)) {
        const difference = comparePrepared(filled.object, validated.get(name));
        return [verdict, difference && `in validation ${difference}\n${context}`];
      }
      return [verdict, `${formatAnswerDiff(toAnswer(wanted), toAnswer(actual))}\n${filled.decodingErrors}\n${context}`];
    };

    /** Returns the difference of the fields that the API server changes in an object before validation. */
    const comparePrepared = (object: KubernetesObject, seen: Fields | undefined): string | undefined => {
      if (seen === undefined) return undefined;
      const [wanted, actual] = [seen, { ...prepareForStorage(object, minor) }].map(selectFieldsChangedAfterWebhooks);
      return isDeepStrictEqual(actual, wanted) ? undefined : formatAnswerDiff(toAnswer(wanted), toAnswer(actual));
    };

    /** Creates an object in a dry run. After an answer 500, tries up to three more times. */
    const create = async (path: string, body: unknown): Promise<TestClusterResponse> => {
      for (let retries = 3; ; retries--) {
        const answer = await admin({ method: "POST", path, body });
        if (answer.code !== 500 || retries === 0) return answer;
      }
    };

    const runs = Number(POSTERN_RUNS ?? 100);
    for (const [letter, what, objects] of [
      ["a", "any object of the known kinds", createAnyObject(minor, false)],
      ["b", "objects with mistakes", createAnyObject(minor, true)],
      ["c", "objects as users write them", fc.oneof(createUsualObject(false), createUsualObject(true))],
      ["d", "Pods and templates that change before validation", createObjectChangedAfterWebhooks()],
    ] as const)
      it(`the object equals the object that the API server sends to webhooks: ${what}`, async () => {
        const seed = Number(process.env.POSTERN_SEED ?? randomInt(2 ** 31));
        const verdicts = new Set<string>();
        const hasBothVerdicts = () => verdicts.has("admitted") && verdicts.has("invalid");
        const different: string[] = [];
        let count = 0;
        // Both verdicts must occur, or the test would prove little: few objects with mistakes are admitted.
        for (let round = 0; round === 0 || (round < 10 && !hasBothVerdicts()); round++) {
          const sample = fc.sample(objects, { seed: seed + round, numRuns: runs });
          for (let start = 0; start < sample.length; start += 16)
            await Promise.all(
              sample.slice(start, start + 16).map(async (object) => {
                const [verdict, difference] = await compare(object, `${letter}${count++}`);
                verdicts.add(verdict);
                if (difference) different.push(difference);
              }),
            );
        }
        assert.deepEqual(different.slice(0, 3), [], `${different.length} of ${count} with seed ${seed}`);
        assert.ok(hasBothVerdicts(), [...verdicts].join());
      });
  });
