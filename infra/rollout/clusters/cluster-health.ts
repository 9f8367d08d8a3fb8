import { isDeepStrictEqual } from "node:util";
import { getVariantName } from "#lib/admission-policies/policies.ts";
import { createUrlKeyVerifier } from "#lib/core/url-key.ts";
import type { CatalogueRule } from "../../catalogue/registry.ts";
import { Complaint, requireComplaint, toSentence } from "../../cli/complaint.ts";
import type { ClusterApi, DeployedObject } from "../../clusters/api.ts";
import { findDifferences, listRulesCalledByEntries } from "../../clusters/apply.ts";
import { findRulesInspectingCluster } from "../../clusters/inspection.ts";
import { probeEntries } from "../../clusters/probe.ts";
import { readClusterMinor } from "../../clusters/version.ts";
import type { ClusterConfig } from "../../config/config.ts";
import { getRuleNameOfEntry, type WebhookEntry } from "../../webhooks/configurations.ts";
import { buildRuleWebhookEntries } from "../../webhooks/entry.ts";
import {
  type PolicyPlacement,
  placePolicies,
  policyNameAnnotation,
  ruleLabel,
} from "../../webhooks/native-policies.ts";
import { readKeyring } from "../stage/keyring.ts";
import { type DeploymentTargets, inspectClusterOfDeployment, openTargetCluster, readLiveEntries } from "../targets.ts";
import type { Release, ReleasedCluster } from "../versions/releases.ts";
import { describeAccessEntryChanges, listFunctionGroups } from "./access-entries.ts";
import { dropVariantEntries, insertKeyIntoUrls, listEntries, webhookConfigurationName } from "./cluster-manifests.ts";
import { describeMinorDrift, hasRuleDependingOnMinor } from "./cluster-minors.ts";

/** What postern status found in a cluster: failing endpoints, and differences from the release. */
export interface ClusterHealth {
  cluster: string;
  /** When the release was deployed to the cluster. */
  at: string;
  /** The number of webhook entries in the release. */
  entries: number;
  /** The number of endpoints that were probed. */
  asked: number;
  /** A sentence for each endpoint that failed its probe. */
  sick: string[];
  /** Milliseconds that the slowest endpoint took to answer its probe. */
  slowest: number;
  /** A sentence for each difference between the cluster and the release. */
  drift: string[];
  /** Where the policies of the release are evaluated; empty if the cluster can't be read. */
  policies: PolicyPlacement[];
  /** A sentence for each thing that could not be checked. */
  unknown: string[];
}

/**
 * Probes each endpoint, and compares the cluster with its release. Both need the segment `{cluster}.{key}` of the
 * cluster's URLs, whose key is a signature. If the caller may not read the private key that makes this signature, no
 * endpoint is probed, and the comparison takes the segment from a URL in the cluster, if the public key verifies it.
 */
export const probeClusterHealth = async (
  targets: Pick<DeploymentTargets, "stage" | "file" | "deployer"> &
    Partial<Pick<DeploymentTargets, "config" | "catalogue">>,
  name: string,
  release: Release,
): Promise<ClusterHealth | undefined> => {
  const recorded = release.clusters[name];
  if (recorded === undefined) return undefined;
  const health: ClusterHealth = {
    cluster: name,
    at: recorded.at,
    entries: listEntries(recorded.manifests).length,
    asked: 0,
    sick: [],
    slowest: 0,
    drift: [],
    policies: [],
    unknown: [],
  };
  const segment = await signSegment(targets, name, recorded).catch((error) => {
    health.unknown.push(
      `its endpoints were not probed, because the key that signs URLs can't be read: ${toSentence(error)}`,
    );
    return undefined;
  });
  if (segment !== undefined) {
    // The entries of a rule's variants call the same function, so each function is probed once per phase.
    const probed = await probeEntries(dropVariantEntries(listEntries(insertKeyIntoUrls(recorded.manifests, segment))));
    health.asked = probed.length;
    health.sick = probed.filter(({ ok }) => !ok).map(({ entry, sentence }) => `${entry}: ${sentence}`);
    health.slowest = Math.max(0, ...probed.map(({ milliseconds }) => milliseconds));
  }
  const { config, catalogue = [] } = targets;
  const cluster = config?.clusters.get(name);
  if (config === undefined || cluster === undefined) {
    health.unknown.push("postern.yaml doesn't say how to reach it");
    return health;
  }
  try {
    const api = await openTargetCluster({ ...targets, config }, name);
    const wanted = insertKeyIntoUrls(recorded.manifests, segment ?? (await findClusterSegment(api, name, recorded)));
    const found = await findDifferences(api, wanted, webhookConfigurationName);
    health.drift = found.map(({ sentence }) => sentence);
    if (hasRuleDependingOnMinor(catalogue, cluster)) {
      const live = await readClusterMinor(api);
      const minorDrift = describeMinorDrift(catalogue, cluster, release.kubernetes?.[name], live);
      if (minorDrift !== undefined) health.drift.push(minorDrift);
    }
    const inspected = await inspectClusterOfDeployment({ ...targets, config, catalogue }, name, recorded);
    health.drift.push(...describeStaleEntries(catalogue, inspected.cluster, listEntries(recorded.manifests)));
    const placed = compareWithRelease(placePolicies(catalogue, inspected.cluster), recorded.manifests);
    health.policies = placed.policies;
    health.drift.push(...placed.drift);
    // Each function that reads the cluster has a Kubernetes group with its rights. In EKS, an access entry puts the
    // function's IAM role into this group.
    if (listFunctionGroups(recorded.manifests).length > 0) {
      const outputs = await targets.stage.stack.readOutputs();
      const changes = describeAccessEntryChanges({ ...targets, config }, name, recorded.manifests, { outputs });
      health.drift.push(...(await changes.catch(rethrowFirstLine)));
    }
  } catch (error) {
    health.unknown.push(toSentence(error));
  }
  return health;
};

/**
 * Throws the first line of a complaint. The others say how the caller gets the right to change access entries, and
 * `postern status` changes none.
 */
const rethrowFirstLine = (error: unknown): never => {
  const [first = ""] = requireComplaint(error).message.split("\n");
  throw new Complaint(first, 3);
};

/** Returns the segment `{cluster}.{key}` of a cluster's URLs. Its key is a signature by the private key in SSM. */
const signSegment = async (
  { stage }: Pick<DeploymentTargets, "stage">,
  name: string,
  { keyVersion }: ReleasedCluster,
) => {
  const keyring = await readKeyring(stage.parameters);
  if (keyring === undefined) throw new Complaint("SSM doesn't have the private key any more");
  return keyring.current.signSegment(name, keyVersion);
};

/** The number of characters of a signature in base64url. */
const signatureCharacters = 86;

/**
 * Finds the segment `{cluster}.{key}` in a cluster's URLs that the release's public key verifies. Without one, returns
 * a segment with an invalid key, so that all URLs in the cluster differ from it.
 */
const findClusterSegment = async (
  api: ClusterApi,
  name: string,
  { keyVersion, signer }: ReleasedCluster,
): Promise<string> => {
  if (signer === undefined)
    throw new Complaint("its entries can't be compared: the release doesn't record which key signed their URLs");
  const verify = createUrlKeyVerifier(signer, () => [keyVersion]);
  const urls = (await readLiveEntries(api)).map(({ clientConfig }) => clientConfig.url);
  const segments = urls.flatMap((url) => String(url).split("/"));
  return segments.find((segment) => verify(segment)?.cluster === name) ?? `${name}.${"x".repeat(signatureCharacters)}`;
};

/**
 * Returns where the policies of a release are evaluated, and a sentence for each policy that the next deployment moves.
 * `wanted` says where each policy should be evaluated: `native` is true for the API server, and false for a function.
 */
const compareWithRelease = (wanted: readonly PolicyPlacement[], manifests: DeployedObject[]) => {
  const releasedNativePolicies = manifests.flatMap(({ kind, metadata: { labels = {}, annotations = {} } }) =>
    /AdmissionPolicy$/.test(kind) ? [`${labels[ruleLabel]} ${annotations[policyNameAnnotation]}`] : [],
  );
  // A policy that the API server can't evaluate itself has a webhook entry for the policy's variant of the rule.
  const calledVariants = listRulesCalledByEntries(manifests).map(({ rule, variant }) => `${rule} ${variant}`);
  const policies: PolicyPlacement[] = [];
  const drift: string[] = [];
  for (const { rule, policy, native, reason } of wanted) {
    const wasNative = releasedNativePolicies.includes(`${rule} ${policy}`);
    if (!wasNative && !calledVariants.includes(`${rule} ${getVariantName(policy)}`)) continue;
    const remedy = "postern deploy moves it"; // also the `reason` of a policy that could be native now
    policies.push({ rule, policy, native: wasNative, ...(!wasNative && { reason: reason ?? remedy }) });
    if (native && !wasNative) drift.push(`the API server can evaluate policy ${policy} itself; ${remedy}`);
    if (!native && wasNative) drift.push(`the API server can't evaluate policy ${policy} itself: ${reason}; ${remedy}`);
  }
  return { policies, drift };
};

/** Describes the rules whose webhook entries would be different now, because the cluster has other objects. */
const describeStaleEntries = (catalogue: CatalogueRule[], cluster: ClusterConfig, recorded: WebhookEntry[]): string[] =>
  findRulesInspectingCluster(catalogue, cluster).flatMap((listed) => {
    const setup = cluster.rules.get(listed.name);
    return listed.phases.flatMap((phase) => {
      const isHardened = false; // Only the failurePolicy depends on it, which isn't compared.
      const wantedEntries = setup ? buildRuleWebhookEntries(listed, phase, setup, isHardened) : [];
      const wantedMatches = wantedEntries.flatMap(({ entry }) => entry.match.map((row) => ({ scope: "*", ...row })));
      const recordedMatches = recorded
        .filter((entry) => getRuleNameOfEntry(entry) === listed.name && entry.clientConfig.url.includes(`/${phase}`))
        .flatMap(({ rules }) => rules);
      if (isDeepStrictEqual(recordedMatches, wantedMatches)) return [];
      const difference = `the ${phase} entries of ${listed.name} don't match what is in the cluster now`;
      return [`${difference}; postern deploy updates them`];
    });
  });
