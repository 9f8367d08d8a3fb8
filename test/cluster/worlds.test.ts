import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { stringify } from "yaml";
import { type Connection, createLiveCapabilities } from "#lib/cluster/live.ts";
import { Failure } from "#lib/failure.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { LabelSelector } from "#lib/objects/selection.ts";
import { plural, type RecordedAnswers, recorded } from "#lib/recorded-answers.ts";
import { initialObjects } from "../../infra/apiserver/initial-objects.ts";
import { servedAmong } from "../../infra/apiserver/kinds/served.ts";
import { readManifests, type Written, writtenCluster } from "../../infra/apiserver/manifest-cluster.ts";
import { Complaint } from "../../infra/cli/complaint.ts";
import { requireBinaries } from "../../infra/parity/control-plane/binaries.ts";
import { bootCluster, type Cluster } from "../../infra/parity/control-plane/cluster.ts";
import { needs } from "../parts.ts";

// What a rule is told is the same whether it comes from manifests that are written down or from a real API server.
const named = (
  kind: string,
  name: string,
  namespace?: string,
  rest = {},
  apiVersion = "v1",
  annotations?: Record<string, string>,
) => {
  return {
    apiVersion,
    kind,
    metadata: { name, ...(namespace && { namespace }), ...(annotations && { annotations }) },
    ...rest,
  };
};
const labelled = <T extends { metadata: object }>(object: T): T => ({
  ...object,
  metadata: { ...object.metadata, labels: { tier: "cheap" } },
});
const annotated = (name: string) => named("Namespace", name, undefined, {}, "v1", { a: name });
const limits = { spec: { limits: [{ type: "Container", max: { cpu: "1" } }] } };
const objects = [
  annotated("a"),
  annotated("ab"),
  annotated("b"),
  named("LimitRange", "small", "a", limits),
  named("LimitRange", "large", "a", limits),
  named("LimitRange", "near", "ab", limits),
  named("LimitRange", "other", "b", limits),
  named("StorageClass", "fast", undefined, { provisioner: "example.com/fast" }, "storage.k8s.io/v1"),
  labelled(named("StorageClass", "slow", undefined, { provisioner: "example.com/slow" }, "storage.k8s.io/v1")),
  named("PriorityClass", "high", undefined, { value: 1000 }, "scheduling.k8s.io/v1"),
];
const plurals: Record<string, string> = {
  Namespace: "/api/v1/namespaces",
  LimitRange: "/api/v1/namespaces/NAMESPACE/limitranges",
  StorageClass: "/apis/storage.k8s.io/v1/storageclasses",
  PriorityClass: "/apis/scheduling.k8s.io/v1/priorityclasses",
};
const user = { username: "jane", groups: ["developers"] };
const may: NonNullable<RecordedAnswers["may"]> = [
  { user, verb: "get", resource: "limitranges", namespace: "a", allowed: true },
  { user, verb: "get", resource: "limitranges", namespace: "b", allowed: false },
];
const discovery = {
  "scheduling.k8s.io/v1": [{ resource: "priorityclasses", kind: "PriorityClass", namespaced: false }],
};
const because =
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an " +
  "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const message = `Namespace "New" is invalid: metadata.name: Invalid value: "New": ${because}`;
const refused = [{ resource: "namespaces", name: "New", status: { code: 422, reason: "Invalid", message } }];

const limitranges = { group: "", resource: "limitranges" };
const namespaces = { group: "", resource: "namespaces" };
const classes = { group: "storage.k8s.io", resource: "storageclasses" };

/** The law of every world. */
const suite = (open: () => Pick<Capabilities, "get" | "list" | "create">) => {
  const names = async (namespace?: string) =>
    (await open().list(limitranges, namespace)).map(({ metadata }) => `${metadata?.namespace}/${metadata?.name}`);

  it("has objects by name, of the kind and version they were asked in", async () => {
    const found = await open().get(limitranges, "small", "a");
    assert.deepEqual([found?.apiVersion, found?.kind, found?.metadata?.name], ["v1", "LimitRange", "small"]);
    assert.equal((await open().get(namespaces, "a"))?.metadata?.annotations?.a, "a");
    assert.equal((await open().get(classes, "fast"))?.apiVersion, "storage.k8s.io/v1");
  });

  it("has nothing where nothing is, and under no name that is none", async () => {
    for (const [name, namespace] of [
      ["none", "a"],
      ["small", "b"],
      ["small", "none"],
      ["", "a"],
      ["..", "a"],
      ["../a/limitranges/small", "b"],
      ["small", ""],
      ["small?x", "a"],
      ["a%2Fb", "a"],
    ] as const)
      assert.equal(await open().get(limitranges, name, namespace), undefined, `${namespace}/${name}`);
    assert.equal(await open().get(namespaces, ""), undefined);
  });

  it("lists a namespace by name, and none that begins alike", async () => {
    assert.deepEqual(await names("a"), ["a/large", "a/small"]);
    assert.deepEqual(await names("b"), ["b/other"]);
    assert.deepEqual(await names("none"), []);
    assert.deepEqual(await names(".."), []);
  });

  it("lists a cluster, each object with its kind", async () => {
    assert.deepEqual(await names(), ["a/large", "a/small", "ab/near", "b/other"]);
    for (const { kind, apiVersion } of await open().list(limitranges))
      assert.deepEqual([kind, apiVersion], ["LimitRange", "v1"]);
  });

  it("lists no more than was asked for", async () => {
    const first = async (most: number) => (await open().list(limitranges, undefined, { most })).length;
    assert.deepEqual([await first(1), await first(3), await first(4), await first(100)], [1, 3, 4, 4]);
    assert.equal((await open().list(limitranges, "a", { most: 1 }))[0]?.metadata?.name, "large");
    assert.equal((await open().list(limitranges, "a")).length, 2);
  });

  it("lists what has the labels that were asked for", async () => {
    const by = async (labels: LabelSelector) =>
      (await open().list(classes, undefined, { labels, most: 1 })).map(({ metadata }) => metadata?.name);
    assert.deepEqual(await by({ matchLabels: { tier: "cheap" } }), ["slow"]);
    assert.deepEqual(await by({ matchExpressions: [{ key: "tier", operator: "NotIn", values: ["cheap"] }] }), ["fast"]);
    assert.deepEqual(await by({ matchLabels: { tier: "cheap,a=b" } }), []);
    assert.deepEqual(await by({}), ["fast"]);
  });

  it("hands out what nobody can change for the next one", async () => {
    const [first] = await open().list(limitranges, "a");
    assert.ok(first?.metadata);
    assert.throws(() => Object.assign(first.metadata ?? {}, { name: "other" }), TypeError);
  });

  it("creates what isn't there, and says where it is", async () => {
    const create = (name: string) => open().create(namespaces, named("Namespace", name));
    assert.deepEqual([await create("new"), await create("new"), await create("a")], ["created", "exists", "exists"]);
    assert.equal((await open().get(namespaces, "new"))?.metadata?.name, "new");
  });
};

/** The law of those who know more than the objects that are there. */
const suiteOfServers = (open: () => Capabilities) => {
  it("knows who may do what", async () => {
    const ask = (namespace: string) => open().may({ user, verb: "get", resource: "limitranges", namespace });
    assert.equal((await ask("a")).allowed, true);
    assert.equal((await ask("b")).allowed, false);
  });

  it("knows the kinds of a group and version, and of none that isn't served", async () => {
    const found = await open().discover("scheduling.k8s.io/v1");
    assert.deepEqual(
      found?.filter(({ resource }) => resource === "priorityclasses"),
      discovery["scheduling.k8s.io/v1"],
    );
    for (const none of ["none.example.com/v1", "../../api", ""]) assert.equal(await open().discover(none), undefined);
  });

  it("tells what the API server says against what can't be created", async () => {
    const made = await open().create(namespaces, named("Namespace", "New"));
    const { details: _, ...status } = typeof made === "string" ? assert.fail(made) : made.refused;
    assert.deepEqual(status, refused[0]?.status);
  });
};

describe("a world that is written down", () => {
  const world = recorded({ objects, may, discovery, refused });
  suite(() => world);
  suiteOfServers(() => world);
});

describe("a world in a folder of manifests", () => {
  let folder: string;
  let world: Written;
  before(async () => {
    folder = await mkdtemp(join(tmpdir(), "postern-manifests-"));
    await mkdir(join(folder, "more", "deep"), { recursive: true });
    const [first, second, third, ...others] = objects;
    await writeFile(join(folder, "first.yaml"), `---\n${stringify(first)}---\n# nothing\n---\n${stringify(second)}`);
    await writeFile(join(folder, "third.json"), JSON.stringify(third));
    const list = { apiVersion: "v1", kind: "List", items: others };
    await writeFile(join(folder, "more", "deep", "others.yml"), stringify(list));
    await writeFile(join(folder, "more", "README.md"), "apiVersion: none");
    world = writtenCluster(await readManifests(folder));
  });
  after(() => rm(folder, { recursive: true, force: true }));

  suite(() => world);

  it("has what every cluster has, and in `default` what says no namespace", async () => {
    const pod = named("Pod", "lonely");
    const { get } = writtenCluster(await manifests({ "pod.json": JSON.stringify(pod) }));
    assert.equal((await get(namespaces, "kube-system"))?.kind, "Namespace");
    assert.equal((await get({ group: "", resource: "pods" }, "lonely", "default"))?.metadata?.namespace, "default");
  });

  it("has what is made in every namespace, unless a manifest has it", async () => {
    const own = named("ServiceAccount", "default", "b", { imagePullSecrets: [{ name: "pull" }] });
    const { get } = writtenCluster(
      await manifests({ "all.json": JSON.stringify(annotated("b")), "own.json": JSON.stringify(own) }),
    );
    const account = async (namespace: string) => get({ group: "", resource: "serviceaccounts" }, "default", namespace);
    assert.equal((await account("kube-system"))?.kind, "ServiceAccount");
    assert.deepEqual(Object(await account("b")).imagePullSecrets, [{ name: "pull" }]);
    assert.equal(await account("none"), undefined);
    assert.equal((await get({ group: "", resource: "configmaps" }, "kube-root-ca.crt", "b"))?.kind, "ConfigMap");
  });

  it("doesn't guess who may do what", async () => {
    const sentence = /^manifests don't say who may do what; only a cluster does$/;
    await assert.rejects(
      () => world.may({ user, verb: "get", resource: "pods" }),
      (error) => error instanceof Failure && error.code === 503 && sentence.test(error.message),
    );
  });

  const manifests = async (files: Record<string, string>) => {
    const own = await mkdtemp(join(folder, "own-"));
    for (const [name, text] of Object.entries(files)) await writeFile(join(own, name), text);
    return readManifests(own).finally(() => rm(own, { recursive: true }));
  };
  const wrong: [string, string, RegExp][] = [
    ["that is no YAML", "a: 1\n---\nb: [", /^a\.yaml:3 is no YAML: /],
    [
      "without a kind",
      "kind: Pod\n---\nmetadata: {}",
      /^a\.yaml, document 1, is no manifest: it must have an apiVersion/,
    ],
    ["of something else", "apiVersion: v1\nkind: Pod\nmetadata: { name: a }\n---\n5", /^a\.yaml, document 2, is no/],
  ];
  for (const [name, text, sentence] of wrong)
    it(`says which file has a manifest ${name}`, () =>
      assert.rejects(
        manifests({ "a.yaml": text }),
        (error) => error instanceof Complaint && sentence.test(error.message),
      ));
});

describe("a world behind a real API server", await needs("API server"), () => {
  let cluster: Cluster;
  let open: (milliseconds?: number) => Capabilities;
  const role = (name: string, namespace: string) =>
    [
      [
        `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}/roles`,
        {
          ...named("Role", name, namespace, {}, "rbac.authorization.k8s.io/v1"),
          rules: [{ apiGroups: [""], resources: ["limitranges"], verbs: ["get"] }],
        },
      ],
      [
        `/apis/rbac.authorization.k8s.io/v1/namespaces/${namespace}/rolebindings`,
        {
          ...named("RoleBinding", name, namespace, {}, "rbac.authorization.k8s.io/v1"),
          roleRef: { apiGroup: "rbac.authorization.k8s.io", kind: "Role", name },
          subjects: [{ apiGroup: "rbac.authorization.k8s.io", kind: "User", name: "jane" }],
        },
      ],
    ] as const;

  before(async () => {
    const binaries = await requireBinaries();
    cluster = await bootCluster(binaries, { rbac: true });
    const made = objects.map(
      (object) => [plurals[object.kind]?.replace("NAMESPACE", object.metadata.namespace ?? ""), object] as const,
    );
    for (const [path = "", body] of [...made, ...role("reads", "a")]) {
      const { code, body: said } = await cluster.admin({ method: "POST", path, body });
      assert.equal(code, 201, String(said.message));
    }
    const { server, ca } = cluster;
    const connection: Connection = { server, ca, credentials: { token: cluster.tokenOf("admin") } };
    const world = createLiveCapabilities({ prod: connection });
    open = (milliseconds = 5000) => world("prod", milliseconds);
  });
  after(() => cluster?.stop());

  suite(() => open());
  suiteOfServers(() => open());

  it("serves the kinds that manifests are taken to have, too", async () => {
    for (const [version, served] of Object.entries(servedAmong([]))) {
      const found = (await open().discover(version))?.filter(({ resource }) => !resource.includes("/"));
      const sorted = [found ?? [], served].map((all) => all.toSorted((one, other) => (one.kind < other.kind ? -1 : 1)));
      assert.deepEqual(sorted[0], sorted[1], version);
    }
  });

  it("has made by itself what manifests are taken to have", async () => {
    for (const { metadata, kind, apiVersion, ...wanted } of initialObjects) {
      const resource = { group: apiVersion?.split("/").at(-2) ?? "", resource: plural(kind ?? "") };
      const found: Record<string, unknown> = { ...(await open().get(resource, metadata.name)) };
      assert.deepEqual(Object(found.metadata).labels, metadata.labels, metadata.name);
      for (const [key, value] of Object.entries(wanted)) assert.deepEqual(found[key], value, `${metadata.name} ${key}`);
    }
  });

  it("fails where it may not create, and where what it should create isn't served", async () => {
    const credentials = { token: cluster.tokenOf("jane") };
    const world = createLiveCapabilities({ prod: { server: cluster.server, ca: cluster.ca, credentials } });
    const [widget, namespace] = [named("Widget", "w"), named("Namespace", "newer")];
    await assert.rejects(world("prod", 5000).create(namespaces, namespace), Failure);
    await assert.rejects(open().create({ group: "example.com", resource: "widgets" }, widget), Failure);
  });

  it("fails with a sentence where a cluster is unknown", async () => {
    const failure = await createLiveCapabilities({})("prod", 1000)
      .get(namespaces, "a")
      .catch((error) => error);
    assert.ok(failure instanceof Failure);
    assert.equal(failure.code, 503);
  });
});
