import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { after, before, describe, it } from "node:test";
import { findUnsupportedValue } from "#infra/webhooks/unsupported-values.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { isEffectiveByDefault } from "../../infra/catalogue/upstream-plugins.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/object-evaluation.ts";
import { chooseMinors } from "../choices.ts";
import {
  getCollectionPath,
  getObjectApiPath,
  type TestClusterClient,
  type TestClusterResponse,
} from "../control-plane/client.ts";
import { applyByKubectl } from "../kubectl/apply.ts";
import { mutatingPolicySet } from "../parity/generators/mutating-policies.ts";
import { createParityTestObjects } from "../parity/generators/surroundings.ts";
import { type PolicySet, validatingPolicySet } from "../parity/generators/validating-policies.ts";
import { listParityObjectFlags } from "../parity/plugins.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { applyEdits } from "../parity/sequence-sender.ts";
import { createPolicies } from "../parity/server-pair.ts";
import { needs, needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { type CreationStep, generateSets, type NamedObject, type ObjectSet, type SetTables } from "./predicted-sets.ts";
import {
  bootPredictedCluster,
  describeDifference,
  isByValidation,
  type PredictedCluster,
  predictedUser,
} from "./prediction.ts";

// Tests that the verdicts of `check` about manifests and reviews equal the answers of a real API server with its
// default plugins.

/** The YAML file beside this test: parts of random sets of objects, and API paths of the cluster's state. */
const tables = readRows<SetTables & { state: string[] }>(import.meta.filename);
const { POSTERN_RUNS, POSTERN_SEED } = process.env;
/** The number of sets of objects that one run of check evaluates together, in one state of the cluster. */
const batchSize = 250;

/**
 * Adds a condition to every 20th policy. From Kubernetes 1.37 on, it fails: it calls `orValue` for a value that is no
 * optional. Only this test adds it. The parity tests use the same policies to compare rules with older API servers:
 * there, this condition would make the answers differ, because rules always evaluate as the newest minor does.
 */
const addVersionedCondition = (set: PolicySet): PolicySet => {
  const condition = {
    name: "versioned",
    expression: "object == null || object.metadata.labels.orValue({}).size() > 0",
  };
  const policies = set.policies.map((object, index) => {
    const { matchConditions = [], ...spec } = Object(Object(object).spec);
    const isChosen = index % 20 === 0 && !object.kind?.endsWith("Binding");
    return isChosen ? { ...object, spec: { ...spec, matchConditions: [...matchConditions, condition] } } : object;
  });
  return { ...set, policies };
};

const { skip } = await needs("kubectl");
for (const minor of chooseMinors({ largeRun: POSTERN_RUNS, suiteGroup: 1 }))
  describe(`the prediction of check for Kubernetes ${minor}`, skip ? { skip } : await needsApiServer(minor), () => {
    let cluster: PredictedCluster;
    let admin: TestClusterClient;
    /** The objects in the cluster before the sets are created. */
    let initialObjects: KubernetesObject[];
    const kinds = buildKindIndex([], minor);

    before(async () => {
      const fill = async (as: TestClusterClient) => {
        await createParityTestObjects(as, minor);
        // There is no controller that creates service accounts.
        for (const { name } of tables.namespaces) {
          const path = `/api/v1/namespaces/${name}/serviceaccounts`;
          if (name) await as({ method: "POST", path, body: { metadata: { name: "default" } } });
        }
      };
      const flags = [
        "--service-cluster-ip-range=10.0.0.0/16",
        "--service-node-port-range=20000-60000",
        ...listParityObjectFlags(minor),
      ];
      cluster = await bootPredictedCluster(minor, [], { flags, fill });
      // If a busy API server doesn't read a policy's parameter in time, it stores nothing, and the write is repeated.
      admin = async (call) => {
        for (let tries = 1; ; tries++) {
          const answer = await cluster.admin(call);
          if (tries === 10 || !/context deadline exceeded/.test(String(answer.body.message))) return answer;
        }
      };
      await createPolicies(admin, addVersionedCondition(validatingPolicySet), minor);
      const neededObjects = mutatingPolicySet.neededObjects.filter(
        (object) => !validatingPolicySet.neededObjects.includes(object),
      );
      const isOn = isEffectiveByDefault("MutatingAdmissionPolicy", minor);
      const withoutHarmful = { ...mutatingPolicySet, policies: keepHarmless(mutatingPolicySet.policies, minor) };
      const mutating: Partial<PolicySet> = isOn
        ? {}
        : { policies: [], readinessPolicyAndBinding: [], kindsRefusedByReadinessPolicy: [] };
      await createPolicies(admin, { ...addVersionedCondition(withoutHarmful), ...mutating, neededObjects }, minor);
      initialObjects = await cluster.readLists(tables.state);
    });
    after(() => cluster?.stop());

    /** The stored objects of a batch, by their paths. */
    type Stored = Map<string, NamedObject>;
    /** Adds the object of an answer to the stored objects. */
    const store = (stored: Stored, method: string, { code, body }: TestClusterResponse) => {
      if (code >= 300 || !Object(body.metadata).name) return;
      const object = body as unknown as NamedObject;
      // The answer to a deletion is a Status, or the object if it remains until its finalizers are removed.
      if (method !== "DELETE" || object.kind !== "Status") stored.set(getObjectApiPath(object), object);
    };

    const createNamespace = async ({ namespace, surroundings }: ObjectSet, stored: Stored) => {
      const { name, labels = {}, isMissing, isEnding } = namespace;
      if (isMissing || isShared(namespace)) return;
      const send = async (method: "POST" | "PATCH" | "DELETE", path: string, body?: object) => {
        const contentType = { ...(method === "PATCH" && { contentType: "application/merge-patch+json" }) };
        const answer = await admin({ method, path, body, ...contentType });
        store(stored, method, answer);
        return answer.code < 300;
      };
      const metadata = { name, labels, ...(isEnding && { finalizers: ["example.com/stay"] }) };
      const namespacesPath = "/api/v1/namespaces";
      assert.ok(await send("POST", namespacesPath, { apiVersion: "v1", kind: "Namespace", metadata }));
      for (const object of surroundings) {
        const { hard = {} } = Object(Object(object).spec);
        const isCreated = await send("POST", getCollectionPath(object), object);
        // There is no controller that counts the used amounts.
        const used = Object.fromEntries(Object.keys(hard).map((name) => [name, "0"]));
        const status = { status: { hard, used } };
        if (object.kind === "ResourceQuota" && isCreated)
          assert.ok(await send("PATCH", `${getObjectApiPath(object)}/status`, status));
      }
      if (isEnding) assert.ok(await send("DELETE", `${namespacesPath}/${name}`));
    };

    /** Reads the ResourceQuotas of the stored objects again, with the amounts in use now. */
    const readQuotas = async (stored: Stored) => {
      const quotas = (await cluster.readLists(["/api/v1/resourcequotas"])) as NamedObject[];
      for (const quota of quotas) if (stored.has(getObjectApiPath(quota))) stored.set(getObjectApiPath(quota), quota);
    };

    /**
     * Waits until the API server's plugins, which read from caches, know the created objects. For this, creates one
     * more quota, which allows no Secrets, and waits until a Secret is refused.
     */
    const waitForQuotas = async () => {
      const name = `refuses-${count++}`;
      const namespacePath = `/api/v1/namespaces/${name}`;
      const quotasPath = `${namespacePath}/resourcequotas`;
      const namespace = { metadata: { name } };
      assert.equal((await admin({ method: "POST", path: "/api/v1/namespaces", body: namespace })).code, 201);
      const quota = { metadata: { name }, spec: { hard: { secrets: "0" } } };
      assert.equal((await admin({ method: "POST", path: quotasPath, body: quota })).code, 201);
      const body = { status: { ...quota.spec, used: { secrets: "0" } } };
      const contentType = "application/merge-patch+json";
      await admin({ method: "PATCH", path: `${quotasPath}/${name}/status`, body, contentType });
      const secret = { metadata: { name } };
      await waitUntil("the last quota has no effect", async () => {
        return (
          (await admin({ method: "POST", path: `${namespacePath}/secrets?dryRun=All`, body: secret })).code === 403
        );
      });
    };
    let count = 0;

    /** Returns the objects that a set's steps create and update. The last step's object is sent only as a review. */
    const listManifests = ({ steps }: ObjectSet): object[] => {
      const created = steps.slice(0, -1);
      const updated = created.filter(({ next }) => next === "update");
      return [...created.map(({ object }) => object), ...updated.map(({ object, edits }) => applyEdits(object, edits))];
    };

    const sendManifest = async (object: NamedObject, stored: Stored): Promise<TestClusterResponse> => {
      const before = stored.get(getObjectApiPath(object));
      if (before === undefined) return admin({ method: "POST", path: getCollectionPath(object), body: object });
      const { resourceVersion } = Object(before.metadata);
      const body = { ...object, metadata: { ...object.metadata, resourceVersion } };
      const path = getObjectApiPath(object);
      const answer = await admin({ method: "PUT", path, body });
      if (!isByValidation(answer)) return answer;
      // kubectl apply keeps the fields that a manifest doesn't have. If it can't build a patch by the schema, it sends
      // no request.
      const contentType = "application/merge-patch+json";
      return (await applyByKubectl(admin, object)) ?? admin({ method: "PATCH", path, body: object, contentType });
    };

    type Scaled = { spec?: { replicas?: number }; kind?: unknown };
    interface LaterStep {
      object: NamedObject;
      call: Parameters<TestClusterClient>[0];
      review: object;
    }

    /**
     * Returns the request that follows a creation, as a call of the API server and as a review. The list is empty if no
     * request follows. The last step's object wasn't created before, so its request is the creation.
     */
    const buildLaterStep = async (
      { object: first, edits, subresource, ...step }: CreationStep,
      stored: Stored,
      isLast: boolean,
    ): Promise<LaterStep[]> => {
      const path = getObjectApiPath(first);
      const before = stored.get(path);
      const kind = kinds.of(String(first.apiVersion), String(first.kind));
      const next = isLast ? "create" : step.next;
      if (kind === undefined || next === "none" || next === "update" || (before === undefined) !== isLast) return [];
      const isScale = next === "subresource" && subresource === "scale";
      const subpath = next === "subresource" ? `/${subresource}` : "";
      const old = isScale ? (await admin({ method: "GET", path: `${path}${subpath}` })).body : before;
      const now: Scaled & object = next === "delete" || old === undefined ? first : applyEdits(old, edits);
      // The JSON of a Scale omits a zero.
      if (isScale && now.spec?.replicas === 0) delete now.spec.replicas;
      const calls: Record<string, [operation: string, LaterStep["call"]]> = {
        Create: ["CREATE", { method: "POST", path: getCollectionPath(first), body: first }],
        Delete: ["DELETE", { method: "DELETE", path: `${path}?gracePeriodSeconds=0` }],
        Update: ["UPDATE", { method: "PUT", path: `${path}${subpath}`, body: now }],
        Patch: ["UPDATE", { method: "PATCH", path, ...buildJsonPatch(old ?? {}, now) }],
      };
      const options = { create: "Create", delete: "Delete", patch: "Patch" }[String(next)] ?? "Update";
      const [operation, call] = calls[options] ?? [];
      const { name, namespace } = first.metadata;
      const request = {
        uid: path,
        kind: isScale ? { group: "autoscaling", version: "v1", kind: "Scale" } : kind.kind,
        resource: kind.resource,
        ...(subpath && { subResource: subresource }),
        name,
        ...(namespace && { namespace }),
        operation,
        userInfo: predictedUser,
        object: options === "Delete" ? null : now,
        oldObject: old ?? null,
        dryRun: false,
        options: { kind: `${options}Options`, apiVersion: "meta.k8s.io/v1" },
      };
      const review = { apiVersion: "admission.k8s.io/v1", kind: "AdmissionReview", request };
      return call ? [{ object: first, call, review }] : [];
    };

    /** Compares the sets of a batch, which share one cluster, and counts the outcomes. */
    const compareBatch = async (sets: readonly ObjectSet[], tally: Tally) => {
      const stored: Stored = new Map();
      await forEachSix(sets, (set) => createNamespace(set, stored));
      await waitForQuotas();
      await readQuotas(stored);
      const state = [...initialObjects, ...stored.values()];
      const manifests = sets.flatMap(listManifests);
      const first = await cluster.predictIn(state, { manifests });
      assert.equal(first.evaluations.length, manifests.length);
      const namespacesAndSurroundings = sets.flatMap(({ namespace, surroundings }): object[] => {
        const { name, labels, isMissing, isEnding } = namespace;
        if (isMissing || isEnding || isShared(namespace)) return [];
        const namespaceObject = { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
        return [namespaceObject, ...surroundings.filter((object) => stored.has(getObjectApiPath(object)))];
      });
      const policies = initialObjects.filter(({ kind }) =>
        /AdmissionPolicy|CustomResourceDefinition/.test(String(kind)),
      );
      // Without --state, check knows only the manifests: those of the sets, and the objects that affect them.
      const withoutState = { manifests: [...policies, ...namespacesAndSurroundings, ...manifests] };
      const strict = await cluster.predictIn([], withoutState);
      const isStrict = false;
      const assumed = await cluster.predictIn([], withoutState, isStrict);
      const takeStrict = takeByName(strict.evaluations.slice());
      const takeAssumed = takeByName(assumed.evaluations.slice());
      const takeManifest = takeByName(manifests as NamedObject[], ({ metadata }) => metadata.name);
      const bySet = Map.groupBy(first.evaluations, ({ checked }) => readSetName(checked.name));
      await forEachSix([...bySet.values()], async (evaluations) => {
        for (const prediction of evaluations) {
          const object = takeManifest(prediction.checked.name) as NamedObject;
          const answer = await sendManifest(object, stored);
          store(stored, "POST", answer);
          tally.compare(answer, prediction, object);
          const strictPrediction = takeStrict(prediction.checked.name);
          if (strictPrediction) tally.compareWithoutState(answer, strictPrediction, object);
          const assumedPrediction = takeAssumed(prediction.checked.name);
          if (assumedPrediction) tally.compareWithAssumptions(answer, assumedPrediction, object);
        }
      });

      await readQuotas(stored);
      const later = await Promise.all(
        sets.map(async ({ steps }) => {
          const laterSteps = await Promise.all(
            steps.map((step, index) => buildLaterStep(step, stored, index === steps.length - 1)),
          );
          return laterSteps.flat();
        }),
      );
      const reviews = later.flat().map(({ review }) => review);
      const second = await cluster.predictIn([...initialObjects, ...stored.values()], { reviews });
      let next = 0;
      const expected = later.map((steps) => steps.map((step) => ({ ...step, prediction: second.evaluations[next++] })));
      await forEachSix(expected, async (steps) => {
        for (const { call, object, prediction } of steps) {
          assert.ok(prediction);
          const answer = await admin(call);
          store(stored, call.method, answer);
          tally.compare(answer, prediction, { call, object });
        }
      });
    };

    const runs = Number(POSTERN_RUNS ?? 60);
    const seed = Number(POSTERN_SEED ?? randomInt(2 ** 31));
    it("predictions equal the API server's answers for objects under policies, quotas and limits", async (t) => {
      const sets = generateSets(tables, runs, seed);
      const tally = createTally(minor);
      for (let start = 0; start < sets.length; start += batchSize)
        await compareBatch(sets.slice(start, start + batchSize), tally);
      const { counts, reasons, different } = tally;
      const steps = sets.flatMap((set) => set.steps);
      const edgeCases = steps.filter(({ isEdgeCase }) => isEdgeCase).length;
      const formatShare = (outcome: string, all: string) =>
        `${((100 * (counts[outcome] ?? 0)) / (counts[all] ?? 1)).toFixed(1)} %`;
      const withoutState = formatShare("undecided without state", "without state");
      t.diagnostic(
        `${JSON.stringify(counts)} with seed ${seed}; ${edgeCases} of ${steps.length} objects are edge cases`,
      );
      t.diagnostic(`undecided: ${formatShare("undecided", "requests")} with --state, ${withoutState} without`);
      for (const [reason, count] of [...reasons].toSorted(([, left], [, right]) => right - left).slice(0, 10))
        t.diagnostic(`undecided ${count} times: ${reason}`);
      assert.deepEqual(different.slice(0, 3), [], `${different.length} of ${counts.requests} with seed ${seed}`);
      assert.equal(counts["falsely allowed"], 0);
      assert.ok(edgeCases > steps.length / 3);
      for (const code of [200, 201, 403, 404, 422]) assert.ok(counts[code], `no answer ${code}`);
    });
  });

/** Removes the policies that make API servers of a minor panic, and the bindings of these policies. */
const keepHarmless = (objects: PolicySet["policies"], minor: string): PolicySet["policies"] => {
  const harmful = objects
    .filter((object) => object.kind === "MutatingAdmissionPolicy")
    .filter((object) => findUnsupportedValue(Object(Object(object).spec), minor) !== undefined)
    .map(({ metadata }) => Object(metadata).name);
  return objects.filter((object) => {
    const { metadata, spec } = Object(object);
    return !harmful.includes(Object(metadata).name) && !harmful.includes(Object(spec).policyName);
  });
};

/** Returns the body of a PATCH that changes one object into the other. */
const buildJsonPatch = (before: object, now: object) => ({
  contentType: "application/json-patch+json",
  body: [
    ...Object.entries(now).map(([name, value]) => ({ op: "add", path: `/${name}`, value })),
    ...Object.keys(before)
      .filter((name) => !Object.hasOwn(now, name))
      .map((name) => ({ op: "remove", path: `/${name}` })),
  ],
});

/** Calls a function with each element. At most six calls run at the same time. */
const forEachSix = async <T>(elements: readonly T[], call: (element: T) => Promise<unknown>): Promise<void> => {
  const rest = elements[Symbol.iterator]();
  const work = async () => {
    for (const element of rest) await call(element);
  };
  await Promise.all(Array.from({ length: 6 }, work));
};

/** Returns a function that returns and removes the first remaining element with a name. */
const takeByName = <T>(
  elements: readonly T[],
  getName = (element: T) => (element as ObjectEvaluation).checked.name,
): ((name: string) => T | undefined) => {
  const byName = Map.groupBy(elements, getName);
  return (name) => byName.get(name)?.shift();
};

/** Reports whether the table names this namespace. Then several sets use the namespace, and none creates it. */
const isShared = ({ name }: ObjectSet["namespace"]): boolean => tables.namespaces.some((row) => row.name === name);

/** Returns the name of the set in an object's name: `set-3` in `set-3-1x`. */
const readSetName = (name: string): string => /^set-\d+/.exec(name)?.[0] ?? "";

/** Compares predictions with the API server's answers, and counts the outcomes. */
interface Tally {
  counts: Record<string, number>;
  /** How often each reason made a prediction undecided. */
  reasons: Map<string, number>;
  /** Descriptions of the differences. */
  different: string[];
  compare(answer: TestClusterResponse, prediction: ObjectEvaluation, sent: object): void;
  /** Compares check's results without --state and with --strict. */
  compareWithoutState(answer: TestClusterResponse, prediction: ObjectEvaluation, sent: object): void;
  /** Compares only check's denials, without --state and --strict: check assumes that objects that are needed exist. */
  compareWithAssumptions(answer: TestClusterResponse, prediction: ObjectEvaluation, sent: object): void;
}

const createTally = (minor: string): Tally => {
  const counts: Record<string, number> = { requests: 0, undecided: 0, "falsely allowed": 0 };
  const reasons = new Map<string, number>();
  const different: string[] = [];
  const count = (name: string) => {
    counts[name] = (counts[name] ?? 0) + 1;
  };
  const report = (difference: string, sent: object, checked: object) =>
    void different.push(`${difference}\n${JSON.stringify(sent)}\n${JSON.stringify(checked)}`);
  return {
    counts,
    reasons,
    different,
    compare: (answer, prediction, sent) => {
      const { verdict, undecided } = prediction.checked;
      count("requests");
      if (verdict === "undecided") {
        count("undecided");
        for (const reason of undecided) {
          // Names of objects (set-3-1x), texts in quotes and names of policies (p7) are left out.
          const general = reason.replaceAll(/set-\d+(-\d)?[^ ;,]*|"[^"]*"|\bp\d+\S*/g, "…");
          reasons.set(general, (reasons.get(general) ?? 0) + 1);
        }
        return;
      }
      count(String(answer.code));
      if (isByValidation(answer)) count("invalid");
      if (verdict !== "denied" && answer.code >= 300) count("falsely allowed");
      const difference = describeDifference(answer, prediction, minor);
      if (difference === undefined) return;
      report(difference, sent, prediction.checked);
    },
    // Here check knows only the manifests. It is undecided about all that depends on the rest of the cluster.
    compareWithoutState: (answer, prediction, sent) => {
      const { verdict } = prediction.checked;
      count("without state");
      if (verdict === "undecided") return count("undecided without state");
      const isAdmitted = answer.code < 300;
      if (isAdmitted === (verdict !== "denied")) return;
      report(`without state: ${answer.code} ${answer.body.message}\n${verdict}`, sent, prediction.checked);
    },
    // Here check knows only the manifests, and assumes that the objects that they need exist. So it may allow too much.
    compareWithAssumptions: (answer, prediction, sent) => {
      const { verdict, denials } = prediction.checked;
      count(`${verdict} by assumptions`);
      // Check assumes and counts the ConfigMap kube-root-ca.crt of each namespace, which this cluster doesn't have.
      const isByAssumedConfigMap = denials.every(({ message }) => /exceeded quota: .*\bconfigmaps=/.test(message));
      if (verdict === "denied" && answer.code < 300 && !isByAssumedConfigMap)
        report("denied by assumptions", sent, prediction.checked);
    },
  };
};
