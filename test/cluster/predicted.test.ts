import assert from "node:assert/strict";
import { randomInt } from "node:crypto";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { isDeepStrictEqual } from "node:util";
import { mutatingPolicySet } from "#infra/parity/generators/mutating-policies.ts";
import { validatingPolicySet } from "#infra/parity/generators/validating-policies.ts";
import type { KubernetesObject } from "#lib/review.ts";
import { fillDefaults, prepareForStorage } from "../../infra/apiserver/defaults/defaults.ts";
import { buildKindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { prepareManifestCheck } from "../../infra/check/check.ts";
import type { ObjectEvaluation } from "../../infra/check/evaluation/evaluation.ts";
import { chooseCluster } from "../../infra/config/config.ts";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import { formatAnswerDiff } from "../../infra/parity/compare.ts";
import { listPlugins, requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import {
  getCollectionPath,
  getObjectApiPath,
  type TestClusterClient,
  type TestClusterResponse,
} from "../../infra/parity/control-plane/client.ts";
import { bootCluster } from "../../infra/parity/control-plane/cluster.ts";
import { createParityTestObjects } from "../../infra/parity/generators/surroundings.ts";
import { listParityObjectFlags } from "../../infra/parity/plugins.ts";
import { openScriptedWebhookEndpoints } from "../../infra/parity/scripted-endpoints.ts";
import { applyEdits } from "../../infra/parity/sequence-sender.ts";
import { createPolicies } from "../../infra/parity/server-pair.ts";
import { parseConfig } from "../../infra/project/project.ts";
import { needsApiServer } from "../parts.ts";
import { readRows } from "../rows.ts";
import { chooseMinors } from "./choices.ts";
import { type CreationStep, generateSets, type NamedObject, type ObjectSet, type SetTables } from "./predicted-sets.ts";
import { createObserver, registerWitness } from "./witness.ts";

// What `check` says of manifests and reviews equals what a real API server says with the plugins that it has on by default.
type Fields = Record<string, unknown>;

const tables = readRows<SetTables & { state: string[] }>(import.meta.filename);
const { POSTERN_RUNS, POSTERN_SEED } = process.env;
/** How many sets share a check, and its state. */
const batchSize = 250;

for (const minor of chooseMinors(POSTERN_RUNS, 1))
  describe(`the prediction of check for Kubernetes ${minor}`, await needsApiServer(minor), () => {
    let folder: string;
    let admin: TestClusterClient;
    /** What the cluster has before the sets. */
    let shared: KubernetesObject[];
    const stops: (() => Promise<unknown>)[] = [];
    const seen = new Map<string, Fields>();
    const kinds = buildKindIndex([], minor);

    before(async () => {
      const binaries = await requireBinaries(minor);
      folder = await mkdtemp(join(tmpdir(), "postern-predicted-"));
      const certificate = await readOrCreateServerCertificate(folder, "127.0.0.1");
      const scripted = await openScriptedWebhookEndpoints(certificate, { witness: createObserver(seen) });
      stops.push(scripted.stop);
      const fill = async (as: (user: "admin") => TestClusterClient) => {
        await createParityTestObjects(as("admin"), minor);
        // No controller creates the accounts.
        for (const { name } of tables.namespaces) {
          const path = `/api/v1/namespaces/${name}/serviceaccounts`;
          if (name) await as("admin")({ method: "POST", path, body: { metadata: { name: "default" } } });
        }
      };
      const flags = ["--service-cluster-ip-range=10.0.0.0/16", ...listParityObjectFlags(minor)];
      const { defaultOn } = await listPlugins(binaries);
      const cluster = await bootCluster(binaries, { disable: defaultOn, late: { enable: defaultOn, fill }, flags });
      stops.push(cluster.stop);
      admin = cluster.admin;
      await createPolicies(admin, validatingPolicySet, minor);
      const { surroundings } = mutatingPolicySet;
      const others = surroundings.filter((object) => !validatingPolicySet.surroundings.includes(object));
      if (defaultOn.includes("MutatingAdmissionPolicy"))
        await createPolicies(admin, { ...mutatingPolicySet, surroundings: others }, minor);
      await registerWitness(admin, scripted.url, certificate.ca, seen);
      shared = (await Promise.all(tables.state.map(readList))).flat();
    });
    after(async () => {
      await Promise.all(stops.map((stop) => stop()));
      await rm(folder, { recursive: true, force: true });
    });

    const readList = async (path: string): Promise<KubernetesObject[]> => {
      const { body } = await admin({ method: "GET", path });
      // The items of a list have no kind and apiVersion.
      const type = { apiVersion: String(body.apiVersion), kind: String(body.kind).replace(/List$/, "") };
      return (Array.isArray(body.items) ? body.items : []).map((item) => ({ ...type, ...item }));
    };
    const writeList = async (name: string, items: readonly object[]): Promise<string[]> => {
      if (items.length === 0) return [];
      const file = join(folder, name);
      await writeFile(file, JSON.stringify({ apiVersion: "v1", kind: "List", items }));
      return [file];
    };

    /** Returns what check says of manifests and reviews, in the order in which it evaluates them, and its notes. */
    const predict = async (given: Record<"manifests" | "reviews" | "state", readonly object[]>) => {
      const yaml = JSON.stringify({ rules: {}, clusters: { local: { kubernetes: minor } } });
      const check = await prepareManifestCheck({
        catalogue: [],
        cluster: chooseCluster(parseConfig(yaml, []), undefined),
        harden: false,
        paths: await writeList("manifests.json", given.manifests),
        reviews: await writeList("reviews.json", given.reviews),
        state: await writeList("state.json", given.state),
        old: [],
        webhooks: [],
        hosts: [],
        plugins: [],
        operation: undefined,
        namespace: "default",
        alsoPods: false,
        user: { username: "admin", groups: ["system:masters", "system:authenticated"] },
      });
      const evaluations: ObjectEvaluation[] = [];
      for await (const evaluation of check.evaluations) evaluations.push(evaluation);
      assert.deepEqual(check.faults, []);
      return { evaluations, notes: [...check.notes] };
    };

    /** The objects of a batch as they are stored, by their paths. */
    type Stored = Map<string, NamedObject>;
    const store = (stored: Stored, method: string, { code, body }: TestClusterResponse) => {
      if (code >= 300 || !Object(body.metadata).name) return;
      const object = body as unknown as NamedObject;
      // A deletion answers with a Status, or with the object that remains until its finalizers are gone.
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
      const home = "/api/v1/namespaces";
      assert.ok(await send("POST", home, { apiVersion: "v1", kind: "Namespace", metadata }));
      for (const object of surroundings) {
        const { hard = {} } = Object(Object(object).spec);
        const isCreated = await send("POST", getCollectionPath(object), object);
        // No controller counts what is used.
        const used = Object.fromEntries(Object.keys(hard).map((name) => [name, "0"]));
        const status = { status: { hard, used } };
        if (object.kind === "ResourceQuota" && isCreated)
          assert.ok(await send("PATCH", `${getObjectApiPath(object)}/status`, status));
      }
      if (isEnding) assert.ok(await send("DELETE", `${home}/${name}`));
    };

    /** Reads what quotas of the stored objects have in use now. */
    const readQuotas = async (stored: Stored) => {
      const quotas = (await readList("/api/v1/resourcequotas")) as NamedObject[];
      for (const quota of quotas) if (stored.has(getObjectApiPath(quota))) stored.set(getObjectApiPath(quota), quota);
    };

    /** Returns the objects that a namespace's manifests have without the rest of the cluster. */
    const listManifests = ({ steps }: ObjectSet): object[] => [
      ...steps.slice(0, -1).map(({ object }) => object),
      ...steps.slice(0, -1).flatMap(({ object, next, edits }) => (next === "update" ? [applyEdits(object, edits)] : [])),
    ];

    const sendManifest = async (object: NamedObject, stored: Stored): Promise<TestClusterResponse> => {
      const before = stored.get(getObjectApiPath(object));
      seen.delete(object.metadata.name);
      if (before === undefined) return admin({ method: "POST", path: getCollectionPath(object), body: object });
      const { resourceVersion } = Object(before.metadata);
      const body = { ...object, metadata: { ...object.metadata, resourceVersion } };
      return admin({ method: "PUT", path: getObjectApiPath(object), body });
    };

    interface LaterStep {
      object: NamedObject;
      call: Parameters<TestClusterClient>[0];
      review: object;
    }

    /** Returns the request of a later step as it is sent to the API server, and as a review of it. */
    const buildLaterStep = async (
      { object: first, next, edits, subresource }: CreationStep,
      stored: Stored,
      isLast: boolean,
    ): Promise<LaterStep[]> => {
      const path = getObjectApiPath(first);
      const before = stored.get(path);
      const kind = kinds.of(String(first.apiVersion), String(first.kind));
      if (kind === undefined || next === "none" || next === "update" || (before === undefined) !== isLast) return [];
      const { name, namespace } = first.metadata;
      const user = { username: "admin", groups: ["system:masters", "system:authenticated"] };
      const build = (operation: string, object: object | null, oldObject: object | null, more: object = {}) => ({
        apiVersion: "admission.k8s.io/v1",
        kind: "AdmissionReview",
        request: {
          uid: path,
          kind: kind.kind,
          resource: kind.resource,
          name,
          ...(namespace && { namespace }),
          operation,
          userInfo: user,
          object,
          oldObject,
          dryRun: false,
          options: null,
          ...more,
        },
      });
      if (isLast) {
        const call = { method: "POST", path: getCollectionPath(first), body: first } as const;
        return [{ object: first, call, review: build("CREATE", first, null) }];
      }
      if (next === "delete") {
        const call = { method: "DELETE", path: `${path}?gracePeriodSeconds=0` } as const;
        return [{ object: first, call, review: build("DELETE", null, before ?? null) }];
      }
      const below = next === "subresource" ? `/${subresource}` : "";
      const isScale = subresource === "scale" && below !== "";
      const { body: old } = isScale ? await admin({ method: "GET", path: `${path}${below}` }) : { body: before as object };
      const body = applyEdits(structuredClone(old) as Fields, edits);
      const scale = { kind: { group: "autoscaling", version: "v1", kind: "Scale" } };
      const review = build("UPDATE", body, old, {
        ...(below && { subResource: subresource }),
        ...(isScale && scale),
      });
      return [{ object: first, call: { method: "PUT", path: `${path}${below}`, body }, review }];
    };

    /** Compares sets, each with the batch's others, and counts the outcomes. */
    const compareBatch = async (sets: readonly ObjectSet[], tally: Tally) => {
      const stored: Stored = new Map();
      await forEachSix(sets, (set) => createNamespace(set, stored));
      // The API server's plugins read what was created from their caches.
      await wait(500);
      await readQuotas(stored);
      const state = [...shared, ...stored.values()];
      const manifests = sets.flatMap(listManifests);
      const first = await predict({ manifests, reviews: [], state });
      const given = sets.flatMap(({ namespace, surroundings }): object[] => {
        const { name, labels, isMissing, isEnding } = namespace;
        const home = { apiVersion: "v1", kind: "Namespace", metadata: { name, labels } };
        return isMissing || isEnding || isShared(namespace) ? [] : [home, ...surroundings.filter((one) => stored.has(getObjectApiPath(one)))];
      });
      const policies = shared.filter(({ kind }) => /AdmissionPolicy|CustomResourceDefinition/.test(String(kind)));
      const alone = await predict({ manifests: [...policies, ...given, ...manifests], reviews: [], state: [] });
      const isGiven = new Set(given.map((object) => Object(object).metadata.namespace));
      const guesses = takeByName(alone.evaluations.slice());
      const queue = takeByName(manifests as NamedObject[], ({ metadata }) => metadata.name);
      const bySet = Map.groupBy(first.evaluations, ({ checked }) => readSet(checked.name));
      await forEachSix([...bySet.values()], async (evaluations) => {
        const unlike = new Set<string>();
        for (const ours of evaluations) {
          const object = queue(ours.checked.name) as NamedObject;
          const isUpdate = stored.has(getObjectApiPath(object));
          const answer = await sendManifest(object, stored);
          store(stored, "POST", answer);
          // After an invalid object that check allows, the set's quota and this object are others in both.
          const isInvalid = isByValidation(answer) && ours.checked.verdict !== "denied";
          if (isInvalid) unlike.add(ours.checked.name).add("ResourceQuota");
          const isUnlike = [ours.checked.name, ours.checked.denials[0]?.rule ?? ""].some((name) => unlike.has(name));
          if (!isInvalid && isUnlike) {
            tally.count("after an invalid object");
            continue;
          }
          tally.compare(answer, isUpdate ? undefined : seen.get(ours.checked.name), ours, object);
          const guess = guesses(ours.checked.name);
          const reader = isGiven.has(object.metadata.namespace) ? ours.checked.denials[0]?.rule : undefined;
          if (guess) tally.compareAlone(answer, guess, object, () => isNoted(alone.notes, reader));
        }
      });

      await readQuotas(stored);
      const later = await Promise.all(
        sets.map(async ({ steps }) => {
          const all = await Promise.all(steps.map((step, at) => buildLaterStep(step, stored, at === steps.length - 1)));
          return all.flat();
        }),
      );
      const reviews = later.flat().map(({ review }) => review);
      const second = await predict({ manifests: [], reviews, state: [...shared, ...stored.values()] });
      let next = 0;
      const expected = later.map((steps) => steps.map((step) => ({ ...step, ours: second.evaluations[next++] })));
      await forEachSix(expected, async (steps) => {
        for (const { call, object, ours } of steps) {
          assert.ok(ours);
          seen.delete(object.metadata.name);
          const answer = await admin(call);
          store(stored, call.method, answer);
          const last = call.method === "POST" ? seen.get(object.metadata.name) : undefined;
          tally.compare(answer, last, ours, { call, object });
        }
      });
    };

    const runs = Number(POSTERN_RUNS ?? 60);
    const seed = Number(POSTERN_SEED ?? randomInt(2 ** 31));
    it("equals what the API server does with sets of objects under policies, quotas and limits", async (t) => {
      const sets = generateSets(tables, runs, seed);
      const tally = createTally(minor);
      for (let start = 0; start < sets.length; start += batchSize)
        await compareBatch(sets.slice(start, start + batchSize), tally);
      const steps = sets.flatMap((set) => set.steps);
      const edges = steps.filter(({ isEdge }) => isEdge).length;
      t.diagnostic(`${JSON.stringify(tally.counts)} with seed ${seed}`);
      t.diagnostic(`edge cases: ${edges} of ${steps.length} objects`);
      for (const [reason, count] of [...tally.reasons].sort(([, left], [, right]) => right - left))
        t.diagnostic(`undecided ${count} times: ${reason}`);
      await writeFile("/tmp/proof-different.txt", tally.different.join("\n\n"));
      assert.deepEqual(tally.different.length, 0, `${tally.different.length} with seed ${seed}`);
    });
  });

/** Calls a function with each element, six at a time. */
const forEachSix = async <T>(all: readonly T[], call: (element: T) => Promise<unknown>): Promise<void> => {
  const rest = all[Symbol.iterator]();
  const work = async () => {
    for (const element of rest) await call(element);
  };
  await Promise.all(Array.from({ length: 6 }, work));
};

/** Returns a function that takes the next element of a name. */
const takeByName = <T>(
  all: readonly T[],
  getName = (element: T) => (element as ObjectEvaluation).checked.name,
): ((name: string) => T | undefined) => {
  const byName = Map.groupBy(all, getName);
  return (name) => byName.get(name)?.shift();
};

const isShared = ({ name }: ObjectSet["namespace"]): boolean => tables.namespaces.some((row) => row.name === name);

const readSet = (name: string): string => /^set-\d+/.exec(name)?.[0] ?? "";

interface Tally {
  count(name: string): void;
  counts: Record<string, number>;
  reasons: Map<string, number>;
  different: string[];
  compare(answer: TestClusterResponse, last: Fields | undefined, ours: ObjectEvaluation, sent: object): void;
  /** Compares what check says without --state; `isNoted` reports whether a note says why that may be too good. */
  compareAlone(answer: TestClusterResponse, ours: ObjectEvaluation, sent: object, isNoted: () => boolean): void;
}

const createTally = (minor: string): Tally => {
  const counts: Record<string, number> = {};
  const reasons = new Map<string, number>();
  const different: string[] = [];
  const count = (name: string) => {
    counts[name] = (counts[name] ?? 0) + 1;
  };
  const report = (wanted: unknown, actual: unknown, sent: object, checked: object) =>
    void different.push(
      `${formatAnswerDiff(toAnswer(wanted), toAnswer(actual))}\n${JSON.stringify(sent)}\n${JSON.stringify(checked)}`,
    );
  return {
    count,
    counts,
    reasons,
    different,
    compare: (answer, last, ours, sent) => {
      const { verdict, undecided } = ours.checked;
      count("steps");
      if (verdict === "undecided") {
        count("undecided");
        for (const reason of undecided) {
          const general = reason.replaceAll(/set-\d+(-\d)?[^ ;,]*|"[^"]*"|\bp\d+\S*/g, "…");
          reasons.set(general, (reasons.get(general) ?? 0) + 1);
        }
        return;
      }
      count(String(answer.code));
      const [wanted, actual] = withoutRandomNames(compareOutcomes(answer, last, ours, minor));
      if (isDeepStrictEqual(actual, wanted)) return;
      if (verdict !== "denied" && answer.code >= 300 && !isByValidation(answer)) count("falsely allowed");
      report(wanted, actual, sent, ours.checked);
    },
    compareAlone: (answer, ours, sent, isNoted) => {
      const { verdict, denials } = ours.checked;
      count("alone");
      if (verdict === "undecided") return count("alone undecided");
      const isDenied = verdict === "denied";
      if (answer.code < 300 !== isDenied || (isByValidation(answer) && !isDenied)) return;
      if (!isDenied && isNoted()) return count("alone noted");
      report({ alone: answer.code, message: answer.body.message }, { verdict, denials }, sent, ours.checked);
    },
  };
};

/**
 * Reports whether notes say that it isn't known what a plugin reads; without the name of a plugin, that the namespace isn't.
 */
const isNoted = (notes: readonly string[], plugin: string | undefined): boolean =>
  notes.some((note) =>
    plugin === undefined ? /^namespaces? .* aren't among/.test(note) : / ask the cluster/.test(note) && note.includes(plugin),
  );

const toAnswer = (body: unknown) => ({ code: 0, warnings: [], body });

/** Reports whether the API server refused an object between both phases of admission, because it is invalid. */
const isByValidation = ({ code, body }: TestClusterResponse): boolean =>
  code === 422 && !/ denied request: /.test(String(body.message));

/**
 * Returns the API server's outcome and check's, reduced to the parts that can be compared. The API server validates an
 * object between both phases of admission; what validating plugins would say of an invalid one, it doesn't ask.
 */
const compareOutcomes = (
  answer: TestClusterResponse,
  last: Fields | undefined,
  { checked, after }: ObjectEvaluation,
  minor: string,
): [unknown, unknown] => {
  const { code, body, warnings } = answer;
  // The order among policies is random in the API server.
  const denial = checked.denials.find(({ message }) => message === body.message) ?? checked.denials[0];
  // check says in its own words, with the field, why an object can't be read.
  if (code === 400) return [code, denial?.code];
  const mutated = last && readMutated(last, minor);
  if (isByValidation(answer)) return [mutated, last && dropServerFields(after)];
  // Of a policy that check can't decide, the API server may show the refusal.
  if (code === 422 && checked.undecided.length > 0) return [true, denial !== undefined];
  if (code >= 300)
    return [
      { code, message: body.message },
      { code: denial?.code, message: denial?.message },
    ];
  const ours = checked.warnings.map(({ text }) => text);
  const isDeletion = body.kind === "Status" || Object(body.metadata).deletionTimestamp !== undefined;
  const stored = mutated ?? dropServerFields(body);
  return [
    { object: isDeletion ? "deleted" : stored, warnings: warnings.filter(isOfPlugin).sort(), denied: undefined },
    {
      object: isDeletion ? "deleted" : dropServerFields(after),
      warnings: ours.filter(isOfPlugin).sort(),
      denied: denial?.message,
    },
  ];
};

/** Returns an object that the last webhook got, as the API server prepares it for storage and reads it again. */
const readMutated = (last: Fields, minor: string): unknown => {
  const { managedFields: _, ...metadata } = Object(last.metadata);
  const stored = prepareForStorage({ ...last, metadata } as KubernetesObject, minor);
  return dropServerFields(fillDefaults(stored, minor).object);
};

const serverFields = ["uid", "creationTimestamp", "resourceVersion", "generation", "managedFields"];
const dropServerFields = (object: unknown): unknown => {
  const { metadata, ...rest } = Object(object);
  const kept = Object.entries(Object(metadata)).filter(([name]) => !serverFields.includes(name));
  const content = JSON.stringify(rest, (name, value) => (allocated.includes(name) ? undefined : value));
  return { ...JSON.parse(content), metadata: Object.fromEntries(kept) };
};
/** What the API server's storage of Services and volumes chooses, after all plugins. */
const allocated = ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "nodePort", "lastPhaseTransitionTime"];

/** Returns values without the part of volume names that the ServiceAccount plugin draws by lot. */
const withoutRandomNames = <T>(values: T): T =>
  JSON.parse(JSON.stringify(values).replaceAll(/(?<=kube-api-access-)[a-z0-9]{5}/g, "…"));

const isOfPlugin = (warning: string) => /^(would violate PodSecurity|Validation failed for) /.test(warning);
