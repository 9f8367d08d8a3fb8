import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, it } from "node:test";
import fc from "fast-check";
import { validatingPolicySet } from "#infra/parity/generators/validating-policies.ts";
import type { KubernetesObject } from "#lib/review.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/evaluation.ts";
import {
  getCollectionPath,
  type TestClusterClient,
  type TestClusterResponse,
} from "../../infra/parity/control-plane/client.ts";
import { createObjectGenerators } from "../../infra/parity/generators/object-generators.ts";
import { type GeneratedKind, parityGeneratedKinds } from "../../infra/parity/generators/steps.ts";
import { createParityTestObjects } from "../../infra/parity/generators/surroundings.ts";
import { listParityObjectFlags } from "../../infra/parity/plugins.ts";
import { createPolicies } from "../../infra/parity/server-pair.ts";
import { needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { chooseMinors } from "./choices.ts";
import { bootPredictedCluster, describeDifference, type PredictedCluster } from "./prediction.ts";

// What `check` says of a manifest equals what a real API server says with the plugins that it has on by default.
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
    let cluster: PredictedCluster;
    before(async () => {
      const fill = async (admin: TestClusterClient) => {
        await createParityTestObjects(admin, minor);
        // No controller creates the accounts.
        for (const namespace of new Set(namespaces)) {
          const path = `/api/v1/namespaces/${namespace}/serviceaccounts`;
          await admin({ method: "POST", path, body: { metadata: { name: "default" } } });
        }
      };
      cluster = await bootPredictedCluster(minor, state, { flags: listParityObjectFlags(minor), fill });
      await createPolicies(cluster.admin, validatingPolicySet, minor);
    });
    after(() => cluster?.stop());

    const create = ({ kind, namespace, object: body }: Sample): Promise<TestClusterResponse> => {
      const { apiVersion, namespaced } = parityGeneratedKinds[kind];
      const root = String(apiVersion).includes("/") ? `/apis/${apiVersion}` : `/api/${apiVersion}`;
      const path = `${root}${namespaced ? `/namespaces/${namespace}` : ""}/${kind}?dryRun=All&fieldValidation=Ignore`;
      return cluster.admin({ method: "POST", path, body });
    };
    /** Returns what check says of manifests, by their names, in the order in which they are sent. */
    const predict = async (items: readonly object[]): Promise<Map<string, ObjectEvaluation>> => {
      const evaluations = await cluster.predict([await cluster.writeManifests(items)]);
      return new Map(evaluations.map((evaluation) => [evaluation.checked.name, evaluation]));
    };

    const runs = Number(POSTERN_RUNS ?? 100);
    const seed = Number(POSTERN_SEED ?? randomInt(2 ** 31));
    for (const odd of [false, true])
      it(`equals what the API server does with ${odd ? "manifests that are partly wrong" : "manifests"}`, async (t) => {
        const samples = createManifests(odd, seed, runs);
        const evaluations = await predict(samples.map(({ object }) => object));

        const different: string[] = [];
        const counts: Record<string, number> = {};
        const compareSample = async (sample: Sample) => {
          const { name } = sample.object.metadata;
          const ours = evaluations.get(name);
          assert.ok(ours, name);
          const answer = await create(sample);
          const result = ours.checked.verdict === "undecided" ? "undecided" : answer.code;
          counts[result] = (counts[result] ?? 0) + 1;
          const difference = describeDifference(answer, cluster.seen.get(name), ours, minor);
          if (result !== "undecided" && difference !== undefined)
            different.push(`${difference}\n${JSON.stringify(sample.object)}`);
        };
        for (let start = 0; start < samples.length; start += 6)
          await Promise.all(samples.slice(start, start + 6).map(compareSample));
        t.diagnostic(`${JSON.stringify(counts)} with seed ${seed}`);
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
        return cluster.admin({ method, path: `${getCollectionPath(object)}${path}`, body: object, ...contentType });
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
