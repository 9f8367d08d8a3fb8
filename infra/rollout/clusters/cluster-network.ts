import { formatPage } from "../../catalogue/sources.ts";
import { requireComplaint } from "../../cli/complaint.ts";
import { type EksNetwork, readEksNetwork } from "../../clusters/access.ts";
import { listRulesAskingCluster } from "../../config/connections.ts";
import { type DeploymentTargets, getClusterConfig } from "../targets.ts";
import type { PackagedRule } from "../versions/package.ts";

/**
 * Returns lines of a plan that say why reviews from an EKS cluster may not arrive, or why rules may not be able to read
 * it. A line that begins with ? says what can't be read. A cluster whose `server` is in postern.yaml is skipped.
 */
export const describeClusterNetwork = async (
  targets: Pick<DeploymentTargets, "config" | "catalogue" | "stage">,
  name: string,
  packagedRules: Pick<PackagedRule, "readsCluster" | "wanted">[],
): Promise<string[]> => {
  const cluster = getClusterConfig(targets, name);
  const { connect } = cluster;
  if (connect?.eks === undefined || connect.server !== undefined) return [];
  // A `service` in postern.yaml is a relay: a Service in the cluster that forwards the API server's reviews to AWS.
  const hasRelay = cluster.service !== undefined;
  const readingRules = listRulesAskingCluster(targets.catalogue, cluster).map((listed) => listed.name);
  const isReaderInVpc = packagedRules.some(
    ({ readsCluster, wanted: { stackSettings } }) =>
      readsCluster && (stackSettings.VpcConfig?.SubnetIds ?? []).length > 0,
  );
  return readEksNetwork(connect, targets.stage.readAwsKeys).then(
    (network) => describeEksNetwork({ ...network, hasRelay }, readingRules, isReaderInVpc),
    (error: unknown) => [`? its network is not known: ${requireComplaint(error).message}`],
  );
};

/**
 * Returns a note for each problem with an EKS cluster's network. `readingRules` are the rules that read the cluster,
 * and `isInVpc` says whether their functions are in a VPC.
 */
export const describeEksNetwork = (
  { egress, hasPublicEndpoint, publicRanges, hasRelay }: EksNetwork & { hasRelay?: boolean },
  readingRules: string[],
  isInVpc: boolean,
): string[] => {
  const findings: string[] = [];
  if (egress === "CUSTOMER_ROUTED" && !hasRelay)
    findings.push(
      "its API server calls through the cluster's own subnets (CUSTOMER_ROUTED): without a NAT gateway or another way to the Internet there, no review arrives; it resolves names as the VPC does, where an interface endpoint of execute-api with private DNS hides HTTP APIs",
    );
  else if (egress !== "AWS_MANAGED" && !hasRelay)
    findings.push(
      egress === "CUSTOMER_ISOLATED"
        ? "its control plane egress is CUSTOMER_ISOLATED, which AWS doesn't describe: it is not known whether its API server can call a public URL; try a rule with failurePolicy Ignore first, else use a relay"
        : `its control plane egress is ${egress}: it is not known whether its API server can call a public URL; try a rule with failurePolicy Ignore first`,
    );
  const rules = readingRules.join(", ");
  const isLimited = publicRanges.length > 0 && !publicRanges.includes("0.0.0.0/0");
  if (readingRules.length === 0) return findings.map(toNote);
  if (!hasPublicEndpoint && !isInVpc)
    findings.push(`its API server has only a private endpoint, and functions are in no VPC: ${rules} can't read it`);
  // A VPC's functions have two ways: their NAT gateway is in the ranges, or their VPC reaches the private endpoint.
  else if (hasPublicEndpoint && isLimited)
    findings.push(
      isInVpc
        ? `its public endpoint admits only ${publicRanges.join(", ")}: the NAT gateway of the functions' VPC must be in there, or the VPC must reach the private endpoint, or ${rules} can't read it`
        : `its public endpoint admits only ${publicRanges.join(", ")}, and functions outside a VPC have no fixed address: ${rules} can't read it`,
    );
  return findings.map(toNote);
};

const toNote = (finding: string) => `! ${finding} (${formatPage("how-to/networks.md")})`;
