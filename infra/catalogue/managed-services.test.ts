import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { describe, it } from "node:test";
import {
  type ApiServerFacts,
  describeMinorsOfService,
  findManagedService,
  findReasonToBeOn,
  isVersionNeeded,
  listPublishedFacts,
  type ManagedService,
} from "./managed-services.ts";

const eksPage = "https://docs.aws.amazon.com/eks/latest/userguide/platform-versions.html";
const gkePage = "https://docs.cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster";
const aksPage = "https://learn.microsoft.com/en-us/azure/aks/faq";

describe("a plugin in an API server", () => {
  type Row = [plugin: string, facts: ApiServerFacts, isSure?: boolean, reason?: string];
  const rows: Row[] = [
    ["NodeRestriction", { service: "eks", kubernetes: "1.35" }, true, `EKS 1.35 has it on (${eksPage})`],
    ["NodeRestriction", { service: "eks", kubernetes: "1.36" }],
    ["NodeRestriction", { service: "eks" }],
    ["NodeRestriction", { service: "gke", kubernetes: "1.35" }],
    ["NodeRestriction", { kubernetes: "1.35" }],
    ["PodNodeSelector", { service: "aks" }, true, `AKS has it on (${aksPage})`],
    ["PodNodeSelector", { service: "eks", kubernetes: "1.35" }],
    [
      "DenyServiceExternalIPs",
      { service: "gke", kubernetes: "1.36" },
      false,
      `GKE 1.36 has it on by default (${gkePage})`,
    ],
    ["LimitRanger", { service: "eks", kubernetes: "1.36" }, false, "it is on by default in Kubernetes 1.36"],
    ["LimitRanger", {}, false, "it is on by default in Kubernetes 1.33 to 1.37"],
    ["LimitRanger", { kubernetes: "1.99" }, false, "it is on by default in Kubernetes 1.33 to 1.37"],
    ["PodTopologyLabels", { kubernetes: "1.35" }, false, "it is on by default in Kubernetes 1.35"],
    ["PodTopologyLabels", { kubernetes: "1.34" }],
    ["PodTopologyLabels", {}],
    ["PodGroupProtection", { kubernetes: "1.37" }],
    ["AlwaysPullImages", { service: "eks", kubernetes: "1.35" }],
    ["SecurityContextDeny", { kubernetes: "1.35" }],
  ];
  for (const [plugin, facts, isSure, reason] of rows)
    it(`${plugin} ${reason ? `is ${isSure ? "" : "probably "}on` : "isn't known to be on"}: ${JSON.stringify(facts)}`, () =>
      assert.deepEqual(findReasonToBeOn(plugin, facts), reason && { isSure, reason }));

  const versionNeeds: [plugin: string, facts: ApiServerFacts, isNeeded: boolean][] = [
    ["NodeRestriction", {}, true],
    ["NodeRestriction", { service: "eks" }, true],
    ["NodeRestriction", { service: "eks", kubernetes: "1.35" }, false],
    ["NodeRestriction", { kubernetes: "1.35" }, true],
    ["NodeRestriction", { service: "gke" }, false],
    ["DenyServiceExternalIPs", { kubernetes: "1.35" }, true],
    ["DenyServiceExternalIPs", { service: "eks" }, false],
    ["PodNodeSelector", {}, false],
    ["PodTopologyLabels", { service: "gke" }, true],
    ["PodTopologyLabels", { kubernetes: "1.34" }, false],
    ["LimitRanger", {}, false],
    ["AlwaysPullImages", {}, false],
  ];
  for (const [plugin, facts, isNeeded] of versionNeeds)
    it(`${isNeeded ? "needs" : "doesn't need"} the cluster's version for ${plugin}: ${JSON.stringify(facts)}`, () =>
      assert.equal(isVersionNeeded(plugin, facts), isNeeded));

  const cells: [plugin: string | undefined, service: ManagedService, cell: string][] = [
    ["LimitRanger", "gke", "on"],
    ["PodTopologyLabels", "gke", "on from 1.35"],
    ["NodeRestriction", "eks", "on in 1.33 to 1.35"],
    ["NodeRestriction", "gke", "-"],
    ["DenyServiceExternalIPs", "gke", "on, unless turned off"],
    ["PodGroupWorkloadExists", "aks", "-"],
    [undefined, "eks", "-"],
  ];
  for (const [plugin, service, cell] of cells)
    it(`${plugin} is "${cell}" in the column of ${service}`, () =>
      assert.equal(describeMinorsOfService(plugin, service), cell));
});

it("docs/reference/managed-services.md lists each plugin of a managed service, with the page that says so", async () => {
  const page = await readFile(new URL("../../docs/reference/managed-services.md", import.meta.url), "utf8");
  const rows = page.split("\n").filter((line) => line.startsWith("| `"));
  const facts = (["eks", "gke", "aks"] as const).flatMap((service) =>
    ["1.34", "1.35"].flatMap((minor) => listPublishedFacts(service, minor).map((fact) => ({ service, ...fact }))),
  );
  for (const { service, on, page: url } of facts) {
    const row = rows.find((line) => line.startsWith(`| \`${service}-`) && line.includes(`(${url})`));
    assert.deepEqual(
      on.filter((plugin) => !row?.includes(plugin)),
      [],
    );
  }
});

describe("the service of a cluster", () => {
  const rows: [connect: { eks?: string; server?: string }, service: ManagedService | undefined][] = [
    [{ eks: "prod" }, "eks"],
    [{ server: "https://0123456789ABCDEF.gr7.eu-west-1.eks.amazonaws.com" }, "eks"],
    [{ server: "https://0123.yl4.cn-north-1.eks.amazonaws.com.cn" }, "eks"],
    [{ server: "https://gke-0123-456.europe-west1.gke.goog" }, "gke"],
    [{ server: "https://prod-dns-0123.hcp.westeurope.azmk8s.io:443" }, "aks"],
    [{ server: "https://azmk8s.io.example.com" }, undefined],
    [{ server: "https://203.0.113.7:6443" }, undefined],
    [{ server: "no address" }, undefined],
    [{}, undefined],
  ];
  for (const [connect, service] of rows)
    it(`is ${service} for ${JSON.stringify(connect)}`, () => assert.equal(findManagedService(connect), service));
});
