import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { validatingPolicySet } from "#infra/parity/generators/validating-policies.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import { prepareManifestCheck } from "../../infra/check/check.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/evaluation.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { formatAnswerDiff } from "../../infra/parity/compare.ts";
import { listPlugins, requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import {
  getCollectionPath,
  type TestClusterClient,
  type TestClusterResponse,
} from "../../infra/parity/control-plane/client.ts";
import { bootCluster } from "../../infra/parity/control-plane/cluster.ts";
import { createObjectGenerators } from "../../infra/parity/generators/object-generators.ts";
import { type GeneratedKind, parityGeneratedKinds } from "../../infra/parity/generators/steps.ts";
import { createParityTestObjects } from "../../infra/parity/generators/surroundings.ts";
import { listParityObjectFlags } from "../../infra/parity/plugins.ts";
import { openScriptedWebhookEndpoints } from "../../infra/parity/scripted-endpoints.ts";
import { createPolicies } from "../../infra/parity/server-pair.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { chooseMinors } from "./choices.ts";
import { createObserver, registerWitness } from "./witness.ts";

// What `check` says of a manifest equals what a real API server says with the plugins that it has on by default.
type Fields = Record<string, unknown>;
type Sample = { kind: GeneratedKind; namespace: string; object: KubernetesObject & { metadata: { name: string } } };

const { kinds, namespaces, state } = readRows<{ kinds: GeneratedKind[]; namespaces: string[]; state: string[] }>(
  import.meta.filename,
);
const { POSTERN_RUNS, POSTERN_SEED } = process.env;

/** Labels that choose policies: none in half of the objects. */
const choosingLabels = fc
  .array(fc.nat(149), { maxLength: 2 })
  .map((all) => Object.fromEntries(all.map((index) => [`p${index}`, "on"])));

/** Returns generated manifests; `odd` ones are partly wrong. */
const createManifests = (odd: boolean, seed: number, count: number): Sample[] => {
  const { buildObject } = createObjectGenerators(odd);
  const sample = fc
    .constantFrom(...kinds)
    .chain((kind) => fc.tuple(fc.constant(kind), buildObject(kind), fc.constantFrom(...namespaces), choosingLabels));
  return fc.sample(sample, { seed, numRuns: count }).map(([kind, object, namespace, labels], index) => {
    const place = parityGeneratedKinds[kind].namespaced ? { namespace } : {};
    const own = Object(object.metadata);
    const name = `${odd ? "odd" : "one"}-${index}`;
    const metadata = { ...own, labels: { ...own.labels, ...labels }, name, ...place };
    return { kind, namespace, object: JSON.parse(JSON.stringify({ ...object, metadata })) };
  });
};

const pick = <T>(...values: T[]) => fc.constantFrom(...values);
const optional = <T extends object>(members: { [Name in keyof T]: fc.Arbitrary<T[Name]> }) =>
  fc.record(members, { requiredKeys: [] });
// Each request is at most each limit, for else the API server would find the object invalid.
const requests = optional({ cpu: pick("100m", "500m"), memory: pick("64Mi") });
const limits = optional({ cpu: pick("500m", "1"), memory: pick("64Mi", "1Gi") });
const workload = fc
  .record({ image: pick("a:1", "b"), resources: optional({ requests, limits }) })
  .map((container) => ({ containers: [{ name: "c", ...container }] }));
const part: fc.Arbitrary<KubernetesObject> = fc.oneof(
  { weight: 5, arbitrary: workload.map((spec) => ({ apiVersion: "v1", kind: "Pod", spec })) },
  pick("ClusterIP", "NodePort", "LoadBalancer").map((type) => {
    return { apiVersion: "v1", kind: "Service", spec: { type, ports: [{ port: 80 }] } };
  }),
  pick("1Gi", "2Gi", "10Gi").map((storage) => {
    const resources = { requests: { storage } };
    return { apiVersion: "v1", kind: "PersistentVolumeClaim", spec: { accessModes: ["ReadWriteOnce"], resources } };
  }),
  pick("ConfigMap", "Secret").map((kind) => ({ apiVersion: "v1", kind, data: {} })),
  workload.map((spec) => {
    const labels = { app: "a" };
    const template = { metadata: { labels }, spec };
    return { apiVersion: "apps/v1", kind: "Deployment", spec: { selector: { matchLabels: labels }, template } };
  }),
);

/** A namespace's quota and limits, and what is created in it. */
const objectSet = fc.record({
  hard: optional({
    pods: pick("0", "1", "2"),
    "requests.cpu": pick("500m", "1", "2"),
    cpu: pick("1"),
    "limits.memory": pick("1Gi", "100Mi"),
    services: pick("1"),
    "services.nodeports": pick("0", "1"),
    "services.loadbalancers": pick("0"),
    persistentvolumeclaims: pick("1"),
    "requests.storage": pick("2Gi", "12Gi"),
    "count/configmaps": pick("1"),
    secrets: pick("1"),
    "count/deployments.apps": pick("0", "1"),
  }),
  limits: fc.option(
    fc
      .record({ type: fc.constant("Container"), default: limits, max: optional({ cpu: pick("1") }) })
      .map((one) => [one]),
    { nil: undefined },
  ),
  parts: fc.array(part, { minLength: 3, maxLength: 8 }),
});

for (const minor of chooseMinors(POSTERN_RUNS, 1))
  describe(`the prediction of check for Kubernetes ${minor}`, await needsApiServer(minor), () => {
    let folder: string;
    let admin: TestClusterClient;
    const stops: (() => Promise<unknown>)[] = [];
    const seen = new Map<string, Fields>();

    before(async () => {
      const binaries = await requireBinaries(minor);
      folder = await mkdtemp(join(tmpdir(), "postern-predicted-"));
      const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
      const scripted = await openScriptedWebhookEndpoints(certificate, { witness: createObserver(seen) });
      stops.push(scripted.stop);
      const fill = async (as: (user: "admin") => TestClusterClient) => {
        await createParityTestObjects(as("admin"), minor);
        // No controller creates the accounts.
        for (const namespace of new Set(namespaces)) {
          const path = `/api/v1/namespaces/${namespace}/serviceaccounts`;
          await as("admin")({ method: "POST", path, body: { metadata: { name: "default" } } });
        }
      };
      const flags = listParityObjectFlags(minor);
      const { defaultOn } = await listPlugins(binaries);
      const cluster = await bootCluster(binaries, { disable: defaultOn, late: { enable: defaultOn, fill }, flags });
      stops.push(cluster.stop);
      admin = cluster.admin;
      await createPolicies(admin, validatingPolicySet, minor);
      await registerWitness(admin, scripted.url, certificate.ca, seen);
    });
    after(async () => {
      await Promise.all(stops.map((stop) => stop()));
      await rm(folder, { recursive: true, force: true });
    });

    const create = ({ kind, namespace, object: body }: Sample): Promise<TestClusterResponse> => {
      const { apiVersion, namespaced } = parityGeneratedKinds[kind];
      const root = String(apiVersion).includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
      const path = `${root}${namespaced ? `/namespaces/${namespace}` : ""}/${kind}?dryRun=All&fieldValidation=Ignore`;
      return admin({ method: "POST", path, body });
    };
    const writeList = async (name: string, items: readonly object[]): Promise<string> => {
      const file = join(folder, name);
      await writeFile(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
      return file;
    };
    const readState = async (): Promise<object[]> => {
      const lists = await Promise.all(state.map((path) => admin({ method: "GET", path })));
      return lists.flatMap(({ body }) => {
        // The items of a list have no kind and apiVersion.
        const type = { apiVersion: body.apiVersion, kind: String(body.kind).replace(/List$/, "") };
        return (Array.isArray(body.items) ? body.items : []).map((item) => ({ ...type, ...item }));
      });
    };

    /** Returns what check says of manifests, by their names, in the order in which they are sent. */
    const predict = async (items: readonly object[]): Promise<Map<string, ObjectEvaluation>> => {
      const yaml = JSON.stringify({ rules: {}, clusters: { local: { kubernetes: minor } } });
      const check = await prepareManifestCheck({
        ...{ catalogue: [], cluster: chooseCluster(parseConfig(yaml, []), undefined), harden: false },
        paths: [await writeList("manifests.json", items)],
        state: [await writeList("state.json", await readState())],
        ...{ reviews: [], old: [], webhooks: [], hosts: [], plugins: [] },
        ...{ operation: "CREATE", namespace: "default", alsoPods: false },
        user: { username: "admin", groups: ["system:masters", "system:authenticated"] },
      });
      const evaluations = new Map<string, ObjectEvaluation>();
      for await (const evaluation of check.evaluations) evaluations.set(evaluation.checked.name, evaluation);
      assert.deepEqual(check.faults, []);
      return evaluations;
    };

    const runs = Number(POSTERN_RUNS ?? 100);
    const seed = Number(POSTERN_SEED ?? randomInt(2 ** 31));
    for (const odd of [false, true])
      it(`equals what the API server does with ${odd ? "manifests that are partly wrong" : "manifests"}`, async (t) => {
        const samples = createManifests(odd, seed, runs);
        const evaluations = await predict(samples.map(({ object }) => object));

        const different: string[] = [];
        const counts: Record<string, number> = {};
        // The refusals by API validation, those that check predicts, and all faults that they name.
        let [invalid, predicted] = [0, 0];
        const faults: [cause: string, isFound: boolean][] = [];
        const compareSample = async (sample: Sample) => {
          const { name } = sample.object.metadata;
          const ours = evaluations.get(name);
          assert.ok(ours, name);
          const answer = await create(sample);
          const [wanted, actual] = withoutRandomNames(compareOutcomes(answer, seen.get(name), ours, minor));
          const result = ours.checked.verdict === "undecided" ? "undecided" : answer.code;
          counts[result] = (counts[result] ?? 0) + 1;
          if (isInvalid(answer)) {
            invalid++;
            const found = ours.checked.denials.filter(({ rule }) => rule === validation);
            for (const cause of listCauses(answer.body))
              faults.push([cause, found.some(({ message }) => message === cause)]);
            if (found.length > 0) predicted++;
          }
          if (result !== "undecided" && !isDeepStrictEqual(actual, wanted))
            different.push(`${formatAnswerDiff(toAnswer(wanted), toAnswer(actual))}\n${JSON.stringify(sample.object)}`);
        };
        for (let start = 0; start < samples.length; start += 6)
          await Promise.all(samples.slice(start, start + 6).map(compareSample));
        t.diagnostic(`${JSON.stringify(counts)} with seed ${seed}`);
        const known = faults.filter(([, isFound]) => isFound).length;
        t.diagnostic(
          `predicts ${predicted} of ${invalid} refusals by API validation, and ${known} of ${faults.length} faults`,
        );
        assert.deepEqual(different.slice(0, 3), [], `${different.length} of ${runs} with seed ${seed}`);
        for (const code of [201, 403, ...(odd ? [422] : [])]) assert.ok(counts[code], JSON.stringify(counts));
      });

    it("equals what the API server does with sets of objects under quotas and limits", async (t) => {
      const sets = fc.sample(objectSet, { seed, numRuns: Math.ceil(runs / 5) }).map((set, index) => {
        return { ...set, namespace: `set-${index}` };
      });
      const send = async (
        method: "POST" | "PATCH",
        object: KubernetesObject,
        path: string,
      ): Promise<TestClusterResponse> => {
        const contentType = { ...(method === "PATCH" && { contentType: "application/merge-patch+json" }) };
        return admin({ method, path: `${getCollectionPath(object)}${path}`, body: object, ...contentType });
      };
      const require = async (...request: Parameters<typeof send>) => {
        const { code, body } = await send(...request);
        assert.ok(code < 300, String(body.message));
      };
      const objects: KubernetesObject[] = [];
      for (const { namespace, hard, limits, parts } of sets) {
        const place = (name: string) => ({ apiVersion: "v1", metadata: { name, namespace } });
        await require("POST", { ...place(namespace), kind: "Namespace", metadata: { name: namespace } }, "");
        await require("POST", { ...place("default"), kind: "ServiceAccount" }, "");
        if (limits)
          await require("POST", { ...place("limits"), kind: "LimitRange", spec: { limits } } as KubernetesObject, "");
        const quota = { ...place("quota"), kind: "ResourceQuota", spec: { hard } } as KubernetesObject;
        await require("POST", quota, "");
        // No controller counts what is used.
        const used = Object.fromEntries(Object.keys(hard).map((name) => [name, "0"]));
        await require("PATCH", { ...quota, status: { hard, used } } as KubernetesObject, "/quota/status");
        objects.push(
          ...parts.map(({ metadata, ...part }, index): KubernetesObject => {
            return { ...part, metadata: { ...metadata, name: `${namespace}-${index}`, namespace } };
          }),
        );
      }
      const evaluations = await predict(objects);
      const byNamespace = Map.groupBy([...evaluations.values()], ({ checked }) => checked.namespace);
      const different: string[] = [];
      const counts: Record<string, number> = {};
      const sendSet = async (set: readonly ObjectEvaluation[]) => {
        for (const { checked } of set) {
          const object = objects.find(({ metadata }) => metadata?.name === checked.name) as KubernetesObject;
          const { code, body } = await send("POST", object, "");
          counts[code] = (counts[code] ?? 0) + 1;
          const wanted = code === 201 ? "allowed" : `denied ${body.message}`;
          const actual = [checked.verdict, ...checked.denials.map(({ message }) => message), ...checked.undecided].join(
            " ",
          );
          if (wanted !== actual) different.push(`${wanted}\n${actual}\n${JSON.stringify(object)}`);
        }
      };
      const all = [...byNamespace.values()];
      for (let start = 0; start < all.length; start += 6) await Promise.all(all.slice(start, start + 6).map(sendSet));
      t.diagnostic(`${JSON.stringify(counts)} with seed ${seed}`);
      assert.deepEqual(different.slice(0, 3), [], `${different.length} of ${objects.length} with seed ${seed}`);
      for (const code of [201, 403]) assert.ok(counts[code], JSON.stringify(counts));
    });
  });

const validation = "API validation";

/** Reports whether an answer refuses an object by API validation. */
const isInvalid = ({ code, body }: Pick<TestClusterResponse, "code" | "body">) =>
  code === 422 && !/ denied request: /.test(String(body.message));

const listCauses = (body: Fields): string[] =>
  (Object(body.details).causes ?? []).map(({ field, message }: Record<string, string>) => `${field}: ${message}`);

const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });

/**
 * Returns the API server's outcome and check's, reduced to the parts that can be compared. The API server validates an
 * object between both phases of admission; what validating plugins would say of an invalid one, it doesn't ask.
 */
const compareOutcomes = (
  { code, body, warnings }: TestClusterResponse,
  last: Fields | undefined,
  { checked, after }: ObjectEvaluation,
  minor: string,
): [unknown, unknown] => {
  const { managedFields: _, ...metadata } = Object(last?.metadata);
  // The witness gets an object before the API server prepares it for storage, and before it is read again.
  const stored = last && prepareForStorage({ ...last, metadata } as KubernetesObject, minor);
  const object = stored && fillDefaults(stored, minor).object;
  // The order among policies is random in the API server.
  const denial = checked.denials.find(({ message }) => message === body.message) ?? checked.denials[0];
  // check says in its own words, with the field, why an object can't be read.
  if (code === 400) return [code, denial?.code];
  if (isInvalid({ code, body })) {
    // check knows only some of the faults, but each of them is one of the API server's.
    const causes = listCauses(body);
    const unfounded = checked.denials.filter(({ rule, message }) => rule === validation && !causes.includes(message));
    return [
      { object, unfounded: [] },
      { object: last && (after ?? undefined), unfounded },
    ];
  }
  // Of a policy that check can't decide, the API server may show the refusal.
  if (code === 422 && checked.undecided.length > 0) return [true, denial !== undefined];
  if (code !== 201)
    return [
      { code, message: body.message },
      { code: denial?.code, message: denial?.message },
    ];
  const ours = checked.warnings.map(({ text }) => text);
  return [
    { object, warnings: warnings.filter(isOfPlugin).sort(), denied: undefined },
    { object: after, warnings: ours.filter(isOfPlugin).sort(), denied: denial?.message },
  ];
};

/** Returns values without the part of volume names that the ServiceAccount plugin draws by lot. */
const withoutRandomNames = <T>(values: T): T =>
  JSON.parse(JSON.stringify(values).replaceAll(/(?<=kube-api-access-)[a-z0-9]{5}/g, "…"));

const isOfPlugin = (warning: string) => /^(would violate PodSecurity|Validation failed for) /.test(warning);
