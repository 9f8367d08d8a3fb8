import assert from "node:assert/strict";
import { relative } from "node:path";
import { after, before, describe, it, type TestContext } from "node:test";
import fc from "fast-check";
import type { KubernetesObject } from "#lib/review.ts";
import builtInKinds from "../../infra/apiserver/kinds/kinds.json" with { type: "json" };
import { buildKindIndex, type KindIndex } from "../../infra/apiserver/kinds/kinds.ts";
import { findModule } from "../../infra/kubernetes/find-module.ts";
import { createKubernetes, type Kubernetes } from "../../infra/kubernetes/kubernetes.ts";
import { readInput } from "../../infra/manifests/input.ts";
import { choosePart } from "../choices.ts";
import { listPlugins, newestMinor, requireBinaries } from "../control-plane/binaries.ts";
import { bootCluster, type TestCluster } from "../control-plane/cluster.ts";
import { waitUntil } from "../parity/rule-server.ts";
import { needs } from "../parts.ts";
import { readRows } from "../rows.ts";
import { readValidObjects } from "../valid-objects.ts";
import { type FaultyObject, generateFaultyObject, type Path } from "./faulty-objects.ts";
import { type ComparedRequest, createComparison } from "./kubernetes-module.ts";
import { findPublishedManifests } from "./published.ts";

// The module runs Kubernetes' own handlers in this process. Its answers must be those of an API server without
// admission plugins. POSTERN_RUNS is the number of requests in each test. POSTERN_KUBERNETES is the minor that the
// module emulates, and that the API server has.
const { POSTERN_RUNS, POSTERN_SEED, POSTERN_KUBERNETES: minor = newestMinor } = process.env;
const olderMinor = minor === newestMinor ? undefined : minor;
const runs = Number(POSTERN_RUNS ?? 200);
const seed = Number(POSTERN_SEED ?? Math.floor(Math.random() * 1e9));

const custom = readRows<{
  definition: KubernetesObject;
  objects: KubernetesObject[];
  objectsOfOtherKinds: KubernetesObject[];
}>(import.meta.filename);
const { skip } = await needs("API server", "Kubernetes module");
/** Skips the test with manifests that other projects publish, unless `npm run cluster` has downloaded them. */
const skipPublished = await needs("published manifests");

/** Kinds whose objects an API server never stores. Most answers to them depend on the users of a cluster. */
const unstoredKinds = [
  "Binding",
  "ComponentStatus",
  "LocalSubjectAccessReview",
  "SelfSubjectAccessReview",
  "SelfSubjectReview",
  "SelfSubjectRulesReview",
  "SubjectAccessReview",
  "TokenReview",
];

/** Kinds whose conditions the API server itself writes after a creation. */
const kindsWithConditions = ["APIService", "FlowSchema"];

describe(`the module of Kubernetes' handlers, compared with Kubernetes ${minor}`, { skip }, () => {
  let cluster: TestCluster;
  let module: Kubernetes;
  const valid = [...readValidObjects(), ...custom.objectsOfOtherKinds, custom.definition];
  let kinds: KindIndex = buildKindIndex(valid, minor);
  const getKind = ({ apiVersion = "", kind = "" }: KubernetesObject) => kinds.of(apiVersion, kind);
  const served = valid.filter((object) => getKind(object)?.isServedByDefault);
  /** The valid objects as the API server stores them. */
  const stored: KubernetesObject[] = [];

  before(async () => {
    const binaries = await requireBinaries(minor);
    const { defaultOn } = await listPlugins(binaries);
    [cluster, module] = await Promise.all([
      bootCluster(binaries, { disable: defaultOn, flags: ["--allow-privileged=true"] }),
      createKubernetes({ packed: (await findModule()) ?? "", ...(olderMinor && { minor }) }),
    ]);
  });
  after(async () => {
    await module?.stop();
    await cluster?.stop();
  });

  /** Sends requests to the API server and the module. Fails with the first 20 differences whose cause isn't known. */
  const compareAll = async (t: TestContext, requests: readonly (ComparedRequest & { fault: string })[]) => {
    const { compare } = createComparison(cluster.admin, module, kinds, olderMinor);
    const counts: Record<string, number> = { refused: 0 };
    const unknown: string[] = [];
    for (const { fault, ...request } of requests) {
      const { isRefused, cause, text } = await compare(request);
      if (isRefused) counts.refused = (counts.refused ?? 0) + 1;
      counts[cause] = (counts[cause] ?? 0) + 1;
      if (cause === "unknown")
        unknown.push(`${(request.oldObject ?? request.object).kind}, ${request.verb}, ${fault}\n${text}`);
    }
    t.diagnostic(`seed ${seed}, ${requests.length} requests: ${JSON.stringify(counts)}`);
    assert.deepEqual(unknown.slice(0, 20).join("\n\n"), "", `${unknown.length} of ${requests.length} differ`);
  };
  /** Returns copies of these objects, each with one random fault. */
  const generateFaulty = (objects: readonly KubernetesObject[], isChanged?: (path: Path) => boolean): FaultyObject[] =>
    fc.sample(generateFaultyObject(objects, isChanged), { numRuns: runs, seed });
  const toCreation = (faulty: FaultyObject) => ({ verb: "create" as const, ...faulty });
  const toUpdate =
    (subresource?: string) =>
    ({ object, fault }: FaultyObject) => ({
      verb: "update" as const,
      object,
      fault,
      oldObject: stored.find(({ metadata }) => Object(metadata).uid === Object(object.metadata).uid) ?? object,
      ...(subresource && { subresource }),
    });
  /** Creates objects in the API server, and adds them to `stored` as the API server returns them. */
  const store = async (objects: readonly KubernetesObject[]) => {
    const { send, read } = createComparison(cluster.admin, module, kinds, olderMinor);
    const created: KubernetesObject[] = [];
    for (const object of objects) {
      const { code, body } = await send({ verb: "create", object }, "");
      if (code === 201 && !unstoredKinds.includes(object.kind ?? "")) created.push(body as KubernetesObject);
    }
    for (const object of created) {
      let current = object;
      if (kindsWithConditions.includes(object.kind ?? ""))
        await waitUntil(`${object.kind} has no conditions`, async () => {
          current = await read(object);
          return JSON.stringify(current).includes('"lastTransitionTime"');
        });
      stored.push(current);
    }
  };
  /** Creates CustomResourceDefinitions in the API server and the module, and waits until their kinds are served. */
  const define = async (definitions: readonly KubernetesObject[]) => {
    const countBefore = stored.length;
    await store(definitions);
    const accepted = stored.slice(countBefore).map(({ metadata }) => metadata?.name);
    for (const definition of definitions.filter(({ metadata }) => accepted.includes(metadata?.name))) {
      const [apiVersion = "", kind = ""] = [definition.apiVersion, definition.kind];
      const name = definition.metadata?.name ?? "";
      await module.handle({ verb: "define", apiVersion, kind, name, object: JSON.stringify(definition) });
      const path = `/apis/apiextensions.k8s.io/v1/customresourcedefinitions/${name}`;
      await waitUntil(`${name} isn't served`, async () =>
        /"type":"Established"/.test(JSON.stringify((await cluster.admin({ method: "GET", path })).body)),
      );
    }
  };

  it("the module is tested with a valid object of each kind that an API server stores", () => {
    const builtIn = Object.entries(builtInKinds).flatMap(([apiVersion, kinds]) =>
      Object.keys(kinds).map((kind) => ({ apiVersion, kind })),
    );
    const hasValidObject = (wanted: { apiVersion: string; kind: string }) =>
      valid.some(({ apiVersion, kind }) => apiVersion === wanted.apiVersion && kind === wanted.kind);
    const missing = builtIn
      .filter((type) => getKind(type)?.isServedByDefault && !unstoredKinds.includes(type.kind))
      .filter((type) => !hasValidObject(type));
    assert.deepEqual(missing, []);
  });

  it("the module answers creations of valid objects and of objects with one fault as the API server does", (t) =>
    compareAll(t, [...served.map((object) => ({ object, fault: "none" })), ...generateFaulty(served)].map(toCreation)));

  it("the module answers updates with one change as the API server does", async (t) => {
    await store(served.filter(({ kind }) => kind !== "CustomResourceDefinition"));
    assert.ok(stored.length > 60, String(stored.length));
    const isSetByUsers = ([first, second]: Path) =>
      first !== "metadata" || /^(name|labels|annotations|finalizers|ownerReferences)$/.test(String(second));
    await compareAll(t, generateFaulty(stored, isSetByUsers).map(toUpdate()));
  });

  it("the module answers updates of the subresources status and scale as the API server does", async (t) => {
    const findWithSubresource = (subresource: string) =>
      stored.filter((object) => getKind(object)?.subresources.includes(subresource));
    const scales = findWithSubresource("scale").map(({ metadata }) => ({
      apiVersion: "autoscaling/v1",
      kind: "Scale",
      metadata: { name: metadata?.name, namespace: metadata?.namespace, uid: Object(metadata).uid },
      spec: { replicas: 2 },
    }));
    await compareAll(t, [
      ...generateFaulty(findWithSubresource("status"), ([first]) => first === "status").map(toUpdate("status")),
      ...generateFaulty(scales as KubernetesObject[], ([first, second]) => first === "spec" || second === "name").map(
        toUpdate("scale"),
      ),
    ]);
  });

  it("the module answers deletions as the API server does", async (t) => {
    const options = ["Background", "Foreground", "Orphan"].map((propagationPolicy) => ({
      apiVersion: "v1",
      kind: "DeleteOptions",
      dryRun: ["All"],
      gracePeriodSeconds: 5,
      propagationPolicy,
      preconditions: { uid: "UID", resourceVersion: "VERSION" },
    }));
    // Without a dry run, the API server would delete the object.
    const faulty = generateFaulty(options as KubernetesObject[], ([first]) => first !== "dryRun");
    // The options are distributed to the stored objects in turn.
    const deletions = faulty.map(({ object, fault }, index) => {
      const oldObject = stored[index % stored.length] ?? {};
      const { uid, resourceVersion } = Object(oldObject.metadata);
      const text = JSON.stringify(object).replace("UID", uid).replace("VERSION", resourceVersion);
      return { verb: "delete" as const, object: JSON.parse(text), oldObject, fault };
    });
    await compareAll(t, deletions);
  });

  it("the module answers creations and updates of custom resources as the API server does", async (t) => {
    await define([custom.definition]);
    kinds = buildKindIndex([...valid], minor);
    await compareAll(
      t,
      [...custom.objects.map((object) => ({ object, fault: "none" })), ...generateFaulty(custom.objects)].map(
        toCreation,
      ),
    );
    const countBefore = stored.length;
    await store(custom.objects);
    const isInSpec = ([first]: Path) => first === "spec";
    await compareAll(t, generateFaulty(stored.slice(countBefore), isInSpec).map(toUpdate()));
  });

  it("the module answers creations of published manifests as the API server does", skipPublished, async (t) => {
    const folder = (await findPublishedManifests()) ?? "";
    const isChosen = choosePart("published manifests for the module", 3, seed, POSTERN_RUNS === undefined);
    const input = await readInput([folder]);
    const located = input.manifests.map(({ object, source, line }) => ({
      object: object as KubernetesObject,
      fault: `${relative(folder, source.name)}:${line}`,
    }));
    const definitions = located.filter(({ object }) => object.kind === "CustomResourceDefinition");
    await compareAll(t, definitions.filter((_, index) => isChosen(index)).map(toCreation));
    const definitionsByName = new Map(definitions.map(({ object }) => [object.metadata?.name, object]));
    const uniqueDefinitions = [...definitionsByName.values()];
    await define(uniqueDefinitions.filter(({ apiVersion }) => apiVersion === "apiextensions.k8s.io/v1"));
    kinds = buildKindIndex([...uniqueDefinitions, ...valid], minor);
    const otherObjects = located.filter(
      ({ object }) =>
        getKind(object)?.isServedByDefault && !definitions.some((definition) => definition.object === object),
    );
    await compareAll(t, otherObjects.filter((_, index) => isChosen(index)).map(toCreation));
  });
});
