import { createCredentialSource } from "#lib/cluster/credentials.ts";
import { sendRequest } from "#lib/cluster/https-request.ts";
import type { AwsKeys } from "#lib/cluster/signature.ts";
import { toMap } from "#lib/json.ts";
import type { StageLockGuard } from "../aws/guard.ts";
import type { ParsedOptions } from "../cli/command.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import type { ClusterConnectConfig } from "../config/config.ts";
import { resolveConfigPath } from "../config/connections.ts";
import { readCertificatesFromPemOrFile, readKubeconfig, readKubeconfigVariable } from "../config/kubeconfig.ts";
import { type ClusterApi, type ClusterConnection, createClusterApi } from "./api.ts";
import { chooseEksIdentity, openEks } from "./eks.ts";

/** With which credentials a cluster is opened. */
export interface ClusterCredentialOptions {
  kubeconfig?: string | undefined;
  context?: string | undefined;
  /** The context of the kubeconfig to use if it exists and `context` isn't set. */
  preferredContext?: string | undefined;
  identity?: (() => Promise<AwsKeys>) | undefined;
  /** Checks before each change of the cluster that the command still has the stage's lock. */
  guard?: StageLockGuard;
  /** The folder of postern.yaml. Paths in postern.yaml are relative to it. */
  folder?: string;
  /** What the user must be allowed to do. The error message about missing credentials says it. */
  neededRight?: string;
}

/**
 * Opens a cluster's API, by `resolveClusterConnection`. Before each change of the cluster, the API calls `guard`, which
 * throws if the command has lost its stage's lock.
 */
export const openClusterApi = async (
  name: string,
  connect: ClusterConnectConfig | undefined,
  credentials: ClusterCredentialOptions = {},
): Promise<ClusterApi> =>
  createClusterApi(name, { ...(await resolveClusterConnection(name, connect, credentials)), guard: credentials.guard });

/**
 * Chooses how to connect to a cluster, in this order: the option --kubeconfig, a kubeconfig in postern.yaml, EKS in
 * postern.yaml (unless `context` is set, which only a kubeconfig has), and the variable KUBECONFIG. `preferredContext`
 * is used if `context` isn't set and the kubeconfig has it.
 */
export const resolveClusterConnection = async (
  name: string,
  connect: ClusterConnectConfig | undefined,
  {
    kubeconfig,
    context,
    preferredContext,
    identity,
    folder = ".",
    neededRight = "write webhook configurations",
  }: ClusterCredentialOptions,
): Promise<ClusterConnection> => {
  if (kubeconfig !== undefined) {
    const chosen = { files: [resolveConfigPath(kubeconfig, ".")], mayRunExec: true, context, preferredContext };
    return connectByKubeconfig(chosen, `--kubeconfig ${kubeconfig}`);
  }
  const connectPath = `clusters.${name}.connect`;
  if (connect?.kubeconfig !== undefined) {
    const files = [resolveConfigPath(connect.kubeconfig, folder)];
    return connectByKubeconfig({ files, mayRunExec: false, context: context ?? connect.context }, connectPath);
  }
  const kubeconfigVariable = readKubeconfigVariable(name, context);
  if (context !== undefined && kubeconfigVariable === undefined)
    throw new Complaint(`--context ${context} needs a --kubeconfig that has it`);
  if (connect?.eks !== undefined && identity !== undefined && context === undefined)
    return connectByEks(name, connect, identity, folder);
  if (kubeconfigVariable !== undefined) return connectByKubeconfig(kubeconfigVariable, "KUBECONFIG");
  const give = `--kubeconfig FILE of a user who may ${neededRight} there`;
  if (connect === undefined) throw new Complaint(`cluster ${name} needs connect in postern.yaml, or ${give}`);
  const why = () => {
    if (connect.eks !== undefined) return `${connectPath} needs an AWS identity, but no credentials were found`;
    if (connect.manifests !== undefined) return `${connectPath} is a folder of manifests`;
    return `${connectPath} has a token that only rules use`;
  };
  throw new Complaint(`${why()}: give ${give}`);
};

/** Returns how to reach a cluster with the credentials of a kubeconfig. */
const connectByKubeconfig = async (
  chosen: Parameters<typeof readKubeconfig>[0],
  where: string,
): Promise<ClusterConnection> => {
  const connection = await readKubeconfig(chosen).catch(rethrowAsComplaint(where, "can't be read: "));
  const credentialsAdvice = `the token or certificate in ${chosen.files.join(", ")} may have expired; renew it`;
  return { ...connection, credentialsAdvice };
};

/** Returns how to reach an EKS cluster with the AWS identity of the user, or with a role. */
const connectByEks = async (
  cluster: string,
  connect: ClusterConnectConfig,
  readIdentity: () => Promise<AwsKeys>,
  folder: string,
): Promise<ClusterConnection> => {
  const { eks = "", region = "", role } = connect;
  const complain = rethrowAsComplaint(`clusters.${cluster}.connect`);
  const { server, ca } =
    connect.server === undefined || connect.ca === undefined
      ? await readEksServerAndCa(connect, readIdentity)
      : {
          server: new URL(connect.server).origin,
          ca: await readCertificatesFromPemOrFile(connect.ca, folder).catch(complain),
        };
  const identity = chooseEksIdentity(connect, readIdentity);
  const credentials = createCredentialSource({ eks, region }, { identity, ask: sendRequest });
  const credentialsAdvice = `give ${role ?? "the AWS identity that deploys"} an access entry of the EKS cluster ${eks}`;
  return { server, ca, credentials, credentialsAdvice };
};

/**
 * Returns a handler that rethrows an error as a Complaint, which begins with `where`. If the error comes from the file
 * system, `fileErrorPrefix`, such as "can't be read: ", stands before its message.
 */
const rethrowAsComplaint =
  (where: string, fileErrorPrefix = "") =>
  (error: unknown): never => {
    const isFileError = toMap(error).code !== undefined;
    throw new Complaint(`${where} ${isFileError ? fileErrorPrefix : ""}${toSentence(error)}`);
  };

/** The network settings of an EKS cluster. */
export interface EksNetwork {
  /** The mode of control plane egress, such as AWS_MANAGED or CUSTOMER_ROUTED: how the API server calls webhooks. */
  egress: string;
  /** True if clients can reach the API server from the Internet. */
  hasPublicEndpoint: boolean;
  /** The address ranges from which the public endpoint accepts connections. */
  publicRanges: string[];
}

/** Reads the address and the CA of an EKS cluster's API server from AWS. */
export const readEksServerAndCa = async (
  connect: ClusterConnectConfig,
  readIdentity: () => Promise<AwsKeys>,
): Promise<{ server: string; ca: string }> => {
  const { eks, region } = connect;
  const { endpoint, certificateAuthority, status } = await describeEksCluster(connect, readIdentity);
  const { data } = toMap(certificateAuthority);
  if (typeof endpoint !== "string" || !URL.canParse(endpoint) || typeof data !== "string")
    throw new Complaint(`the EKS cluster ${eks} in ${region} has no address yet; its status is ${status}`, 3);
  return { server: new URL(endpoint).origin, ca: Buffer.from(data, "base64").toString() };
};

/** Returns how the API server of an EKS cluster is connected to networks. */
export const readEksNetwork = async (
  connect: ClusterConnectConfig,
  readIdentity: () => Promise<AwsKeys>,
): Promise<EksNetwork> => {
  const { resourcesVpcConfig } = await describeEksCluster(connect, readIdentity);
  const { controlPlaneEgressMode, endpointPublicAccess, publicAccessCidrs } = toMap(resourcesVpcConfig);
  return {
    egress: String(controlPlaneEgressMode ?? "AWS_MANAGED"),
    hasPublicEndpoint: endpointPublicAccess !== false,
    publicRanges: [publicAccessCidrs ?? []].flat().map(String),
  };
};

/** Returns the answer of EKS's DescribeCluster. */
const describeEksCluster = async (
  connect: ClusterConnectConfig,
  readIdentity: () => Promise<AwsKeys>,
): Promise<Record<string, unknown>> => {
  const { eks, region } = connect;
  const { status, content, sentence } = await openEks(connect, readIdentity)();
  if (status === 200) return toMap(content.cluster);
  const remedy = status === 403 ? "; allow eks:DescribeCluster, or name server and ca in its connect" : "";
  throw new Complaint(`EKS doesn't describe cluster ${eks} in ${region} (${status}): ${sentence}${remedy}`, 3);
};

/** Reads the options --kubeconfig and --context. Throws if --context is given for several clusters. */
export const readClusterCredentials = (
  options: ParsedOptions,
  clusters: readonly string[],
): ClusterCredentialOptions => {
  const [kubeconfig, context] = [options.text("kubeconfig"), options.text("context")];
  if (context !== undefined && clusters.length > 1)
    throw new Complaint(
      "--context is for one cluster; choose the cluster with --cluster, or give each context the name of its cluster",
    );
  return { kubeconfig, context };
};
