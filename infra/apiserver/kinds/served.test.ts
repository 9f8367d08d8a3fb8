import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { describedWorld, servedAmong, servedAs } from "./served.ts";

const definition = {
  apiVersion: "apiextensions.k8s.io/v1",
  kind: "CustomResourceDefinition",
  metadata: { name: "geese.example.com" },
  spec: {
    ...{ group: "example.com", scope: "Namespaced", names: { kind: "Goose", plural: "geese" } },
    versions: [{ name: "v1", served: true }, { name: "v1alpha1", served: false }, 5],
  },
};
const goose = { apiVersion: "example.com/v1", kind: "Goose", metadata: { name: "a", namespace: "pond" } };
const policies = "policy.kcloudlabs.io/v1alpha1";
const widget = { apiVersion: "example.org/v1", kind: "Widget", metadata: { name: "a" } };

describe("which kinds there are", () => {
  const known: [string, object[], object, object | undefined][] = [
    [
      "has Kubernetes' own in namespaces",
      [],
      { apiVersion: "apps/v1", kind: "Deployment" },
      { resource: "deployments", kind: "Deployment", namespaced: true },
    ],
    [
      "has Kubernetes' own outside of them",
      [],
      { apiVersion: "networking.k8s.io/v1", kind: "IngressClass" },
      { resource: "ingressclasses", kind: "IngressClass", namespaced: false },
    ],
    ["has no others", [], goose, undefined],
    ["has none that is off", [], { apiVersion: "resource.k8s.io/v1beta1", kind: "DeviceClass" }, undefined],
    [
      "has one that is off and of which there is one",
      [{ apiVersion: "resource.k8s.io/v1beta1", kind: "DeviceClass", metadata: { name: "a" } }],
      { apiVersion: "resource.k8s.io/v1beta1", kind: "DeviceClass" },
      { resource: "deviceclasses", kind: "DeviceClass", namespaced: false },
    ],
    ["has none for policies, unless there is one", [], { apiVersion: policies, kind: "OverridePolicy" }, undefined],
    [
      "has those for policies in namespaces, wherever the first one is",
      [{ apiVersion: policies, kind: "OverridePolicy", metadata: { name: "a" } }],
      { apiVersion: policies, kind: "OverridePolicy" },
      { resource: "overridepolicies", kind: "OverridePolicy", namespaced: true },
    ],
    ["has those that are defined", [definition], goose, { resource: "geese", kind: "Goose", namespaced: true }],
    ["has no version that isn't served", [definition], { ...goose, apiVersion: "example.com/v1alpha1" }, undefined],
    ["has those of objects, by guess", [widget], widget, { resource: "widgets", kind: "Widget", namespaced: false }],
    [
      "has those in namespaces of which any is in one",
      [widget, { ...widget, metadata: { name: "b", namespace: "c" } }],
      widget,
      { resource: "widgets", kind: "Widget", namespaced: true },
    ],
    ["takes no name for a version", [], { apiVersion: "constructor", kind: "name" }, undefined],
    [
      "takes a version for no more than its name",
      [{ ...widget, apiVersion: "__proto__" }],
      { ...widget, apiVersion: "__proto__" },
      { resource: "widgets", kind: "Widget", namespaced: false },
    ],
    ["has nothing of a definition that defines nothing", [{ ...definition, spec: { group: 5 } }], goose, undefined],
  ];
  for (const [name, objects, object, served] of known)
    it(name, () => assert.deepEqual(servedAs(servedAmong(objects), object), served));
});

describe("a world with the kinds that its objects tell of", () => {
  const geese = { group: "example.com", version: "v1", resource: "geese" };

  it("has objects under the plural that is defined for them", async () => {
    const world = describedWorld({ objects: [definition, goose] });
    assert.equal((await world.get(geese, "a", "pond"))?.kind, "Goose");
    assert.equal((await world.list(geese)).length, 1);
    await world.create(geese, { ...goose, metadata: { name: "b", namespace: "pond" } });
    assert.equal((await world.list(geese, "pond")).length, 2);
  });

  it("believes what is written down of a version", async () => {
    const discovery = { v1: [{ resource: "pods", kind: "Pod", namespaced: false }] };
    const world = describedWorld({ discovery });
    assert.deepEqual(await world.discover("v1"), discovery.v1);
    assert.equal((await world.discover("apps/v1"))?.length, 5);
    assert.equal(await world.discover("example.com/v1"), undefined);
  });
});
