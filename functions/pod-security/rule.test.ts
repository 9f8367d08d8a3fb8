import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { Container } from "postern/kubernetes/core/v1";
import type { Capabilities } from "postern/needs";
import type { AdmissionRequest } from "postern/review";
import { createRecordedCapabilities, openRule } from "postern/test";
import { appArmorProfile } from "./checks/baseline/app-armor.ts";
import { seccompProfileBaseline } from "./checks/baseline/seccomp.ts";
import { toSubject } from "./pods.ts";
import { toLabelKey } from "./policy.ts";
import type { PodSecuritySettings } from "./settings.ts";

const { decide } = await openRule(import.meta.dirname);

describe("a namespace with a stricter level", () => {
  const labels = { [toLabelKey("enforce")]: "baseline" };
  const stricter = { metadata: { name: "a", labels } };
  const raiseLevel = async (capabilities: Capabilities, settings: Partial<PodSecuritySettings> = {}) => {
    const request: AdmissionRequest = {
      uid: "1",
      kind: { group: "", version: "v1", kind: "Namespace" },
      resource: { group: "", version: "v1", resource: "namespaces" },
      name: "a",
      namespace: "a",
      operation: "UPDATE",
      userInfo: { username: "jane" },
      object: stricter,
      oldObject: { metadata: { name: "a" } },
    };
    return (await decide("validate", request, { settings, capabilities })).outcome;
  };
  /** Builds a pod. With `ownerUid`, it violates baseline (hostNetwork), and has an owner, which makes no difference. */
  const buildPod = (name: string, ownerUid?: string) => {
    const ownerReferences = ownerUid
      ? [{ apiVersion: "apps/v1", kind: "ReplicaSet", name: "r", uid: ownerUid, controller: true }]
      : [];
    return {
      apiVersion: "v1",
      kind: "Pod",
      metadata: { name, namespace: "a", ownerReferences },
      spec: { containers: [{ name: "c", image: "app:1" }], ...(ownerUid && { hostNetwork: true }) },
    };
  };

  it("a namespace with a stricter level is admitted with a warning if its pods can't be listed", async () => {
    const list = async () => {
      throw new Error("it is late");
    };
    assert.deepEqual((await raiseLevel({ ...createRecordedCapabilities({}), list })).warnings, [
      "failed to list pods while checking new PodSecurity enforce level",
    ]);
  });

  it("a namespace with a stricter level is admitted with warnings about its first 500 pods", async () => {
    const buildPods = (count: number, uid: string) =>
      Array.from({ length: count }, (_, index) => buildPod(`${uid}-${String(index).padStart(3, "0")}`, uid));
    const warning = 'existing pods in namespace "a" violate the new PodSecurity enforce level "baseline:latest"';
    const listWarnings = async (count: number, settings = {}) => {
      const objects = [...buildPods(count, "1"), buildPod("z")]; // z violates nothing
      return (await raiseLevel(createRecordedCapabilities({ objects }), settings)).warnings;
    };
    assert.deepEqual(await listWarnings(499), [warning]);
    const limitWarning = "new PodSecurity enforce level only checked against the first 500 existing pods";
    assert.deepEqual(await listWarnings(500), [limitWarning, warning]);
    const named = await listWarnings(500, { namesExistingPods: true });
    assert.deepEqual(named, [limitWarning, warning, "1-000 (and 499 other pods): host namespaces"]);
  });
});

describe("an AppArmor or seccomp profile without a type", () => {
  it("an AppArmor or seccomp profile without a type is named as an empty text in a violation, as in upstream", () => {
    const container: object = { name: "c", securityContext: { appArmorProfile: {}, seccompProfile: {} } };
    const subject = toSubject({ metadata: {}, spec: { containers: [container as Container] } });
    const details = [appArmorProfile.since["1.0"], seccompProfileBaseline.since["1.19"]].map(
      (check) => check?.(subject)?.detail,
    );
    assert.deepEqual(details, [
      'container "c" must not set AppArmor profile type to ""',
      'container "c" must not set securityContext.seccompProfile.type to ""',
    ]);
  });
});
