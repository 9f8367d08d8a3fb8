import assert from "node:assert/strict";
import { it } from "node:test";
import type { ResourceQuota } from "#lib/kubernetes/core/v1.ts";
import type { Capabilities } from "#lib/needs.ts";
import type { LabelSelector } from "#lib/objects/selection.ts";
import type { RecordedCapabilityAnswers } from "#lib/recording/recorded-answers.ts";

// The contract of capabilities: rules get the same answers from recordings, from manifests and from a real API server.

export const buildObject = (
  kind: string,
  name: string,
  namespace?: string,
  otherFields = {},
  apiVersion = "v1",
  annotations?: Record<string, string>,
) => {
  const metadata = { name, ...(namespace && { namespace }), ...(annotations && { annotations }) };
  return { apiVersion, kind, metadata, ...otherFields };
};
const addLabel = <T extends { metadata: object }>(object: T): T => ({
  ...object,
  metadata: { ...object.metadata, labels: { tier: "cheap" } },
});
export const buildNamespace = (name: string) => buildObject("Namespace", name, undefined, {}, "v1", { a: name });
const limits = { spec: { limits: [{ type: "Container", max: { cpu: "1" } }] } };
/** The objects that the tested capabilities read. */
export const objects = [
  buildNamespace("a"),
  buildNamespace("ab"),
  buildNamespace("b"),
  buildObject("LimitRange", "small", "a", limits),
  buildObject("LimitRange", "large", "a", limits),
  buildObject("LimitRange", "near", "ab", limits),
  buildObject("LimitRange", "other", "b", limits),
  buildObject("ResourceQuota", "count", "a", { spec: { hard: { pods: "2" } } }),
  buildObject("StorageClass", "fast", undefined, { provisioner: "example.com/fast" }, "storage.k8s.io/v1"),
  addLabel(buildObject("StorageClass", "slow", undefined, { provisioner: "example.com/slow" }, "storage.k8s.io/v1")),
  buildObject("PriorityClass", "high", undefined, { value: 1000 }, "scheduling.k8s.io/v1"),
];
export const user = { username: "jane", groups: ["developers"] };
export const may: NonNullable<RecordedCapabilityAnswers["may"]> = [
  { user, verb: "get", resource: "limitranges", namespace: "a", allowed: true },
  { user, verb: "get", resource: "limitranges", namespace: "b", allowed: false },
];
export const discovery = {
  "scheduling.k8s.io/v1": [{ resource: "priorityclasses", kind: "PriorityClass", namespaced: false }],
};
const reason =
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an " +
  "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const message = `Namespace "New" is invalid: metadata.name: Invalid value: "New": ${reason}`;
export const refused = [{ resource: "namespaces", name: "New", status: { code: 422, reason: "Invalid", message } }];

const limitranges = { group: "", resource: "limitranges" };
export const namespaces = { group: "", resource: "namespaces" };
const quotas = { group: "", resource: "resourcequotas" };
const classes = { group: "storage.k8s.io", resource: "storageclasses" };

/** Tests that capabilities read, list, create and update the objects of the list `objects`. */
export const testObjects = (open: () => Pick<Capabilities, "get" | "list" | "create" | "updateStatus">) => {
  const listNames = async (namespace?: string) =>
    (await open().list(limitranges, namespace)).map(({ metadata }) => `${metadata?.namespace}/${metadata?.name}`);

  it("returns objects by name, with their kind and version", async () => {
    const found = await open().get(limitranges, "small", "a");
    assert.deepEqual([found?.apiVersion, found?.kind, found?.metadata?.name], ["v1", "LimitRange", "small"]);
    assert.equal((await open().get(namespaces, "a"))?.metadata?.annotations?.a, "a");
    assert.equal((await open().get(classes, "fast"))?.apiVersion, "storage.k8s.io/v1");
  });

  it("returns nothing for a missing object or an invalid name", async () => {
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

  it("lists the objects of one namespace, but not of namespaces whose names begin with its name", async () => {
    assert.deepEqual(await listNames("a"), ["a/large", "a/small"]);
    assert.deepEqual(await listNames("b"), ["b/other"]);
    assert.deepEqual(await listNames("none"), []);
    assert.deepEqual(await listNames(".."), []);
  });

  it("lists the objects of a cluster, each with its kind", async () => {
    assert.deepEqual(await listNames(), ["a/large", "a/small", "ab/near", "b/other"]);
    for (const { kind, apiVersion } of await open().list(limitranges))
      assert.deepEqual([kind, apiVersion], ["LimitRange", "v1"]);
  });

  it("lists no more objects than the limit", async () => {
    const countListed = async (limit: number) => (await open().list(limitranges, undefined, { most: limit })).length;
    assert.deepEqual(
      [await countListed(1), await countListed(3), await countListed(4), await countListed(100)],
      [1, 3, 4, 4],
    );
    assert.equal((await open().list(limitranges, "a", { most: 1 }))[0]?.metadata?.name, "large");
    assert.equal((await open().list(limitranges, "a")).length, 2);
  });

  it("lists the objects that a label selector selects", async () => {
    const listSelected = async (labels: LabelSelector) =>
      (await open().list(classes, undefined, { labels, most: 1 })).map(({ metadata }) => metadata?.name);
    assert.deepEqual(await listSelected({ matchLabels: { tier: "cheap" } }), ["slow"]);
    assert.deepEqual(
      await listSelected({ matchExpressions: [{ key: "tier", operator: "NotIn", values: ["cheap"] }] }),
      ["fast"],
    );
    assert.deepEqual(await listSelected({ matchLabels: { tier: "cheap,a=b" } }), []);
    assert.deepEqual(await listSelected({}), ["fast"]);
  });

  it("returns objects that a rule can't change", async () => {
    const [first] = await open().list(limitranges, "a");
    assert.ok(first?.metadata);
    assert.throws(() => Object.assign(first.metadata ?? {}, { name: "other" }), TypeError);
  });

  it("creates a missing object, and reports an existing one", async () => {
    const create = (name: string) => open().create(namespaces, buildObject("Namespace", name));
    assert.deepEqual([await create("new"), await create("new"), await create("a")], ["created", "exists", "exists"]);
    assert.equal((await open().get(namespaces, "new"))?.metadata?.name, "new");
  });

  it("updates a status unless the object was changed since it was read, or is gone", async () => {
    const [quota] = (await open().list(quotas, "a", { maxAge: 0 })) as ResourceQuota[];
    const charge = (name: string, pods: string) => {
      const metadata = { ...quota?.metadata, name };
      const charged: ResourceQuota = { ...quota, metadata, status: { hard: { pods: "2" }, used: { pods } } };
      return open().updateStatus(quotas, charged);
    };
    assert.deepEqual(
      [await charge("count", "1"), await charge("count", "2"), await charge("none", "1")],
      ["updated", "changed", "changed"],
    );
    assert.deepEqual(((await open().list(quotas, "a", { maxAge: 0 })) as ResourceQuota[])[0]?.status?.used, {
      pods: "1",
    });
  });
};

/** Tests capabilities whose objects were stored by an API server or by an imitation of one. */
export const testDefaults = (open: () => Pick<Capabilities, "get">) => {
  it("returns objects with the defaults that the API server stores", async () => {
    const [limit] = limits.spec.limits;
    assert.deepEqual(Object(await open().get(limitranges, "small", "a")).spec.limits, [
      { ...limit, default: { cpu: "1" }, defaultRequest: { cpu: "1" } },
    ]);
    assert.deepEqual((await open().get(namespaces, "a"))?.metadata?.labels, { "kubernetes.io/metadata.name": "a" });
  });
};

/** Tests capabilities that also answer questions about rights, kinds and refusals. */
export const testAnswers = (open: () => Capabilities) => {
  it("answers access reviews", async () => {
    const ask = (namespace: string) => open().may({ user, verb: "get", resource: "limitranges", namespace });
    assert.equal((await ask("a")).allowed, true);
    assert.equal((await ask("b")).allowed, false);
  });

  it("returns the kinds of a served group and version only", async () => {
    const found = await open().discover("scheduling.k8s.io/v1");
    assert.deepEqual(
      found?.filter(({ resource }) => resource === "priorityclasses"),
      discovery["scheduling.k8s.io/v1"],
    );
    for (const none of ["none.example.com/v1", "../../api", ""]) assert.equal(await open().discover(none), undefined);
  });

  it("returns the API server's refusal of an object", async () => {
    const created = await open().create(namespaces, buildObject("Namespace", "New"));
    const { details: _, ...status } = typeof created === "string" ? assert.fail(created) : created.refused;
    assert.deepEqual(status, refused[0]?.status);
  });
};
