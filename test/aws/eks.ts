import { writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { join } from "node:path";
import { close, listen } from "../listen.ts";
import {
  AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  readCaller,
  refuseInQuery,
  toXml,
  xmlType,
} from "./aws-service.ts";

// Stand-ins for EKS and STS. EKS has clusters and access entries, and finds the user of a token. With STS, callers
// assume roles, also in other accounts.

const ownAccount = "123456789012";

/** A cluster of EKS. If `account` is another account, callers need a role of that account to see the cluster. */
export interface EksCluster {
  server: string;
  ca: string;
  /** Fields that replace fields of `resourcesVpcConfig`. */
  network?: object;
  account?: string;
  /** The access entries by principal. */
  entries?: Map<string, AccessEntry>;
}

export interface AccessEntry {
  kubernetesGroups: string[];
  username?: string;
  type?: string;
  tags?: Record<string, string>;
}

export interface Eks {
  clusters: Map<string, EksCluster>;
  eks: AwsService;
  sts: AwsService;
  /** Roles of other accounts that callers may assume. Callers may also assume the roles of stacks. */
  roles: Set<string>;
  /** Returns the role that a caller has assumed; undefined if it has assumed none. */
  getAssumedRole(caller: string | undefined): string | undefined;
  reset(): void;
  /** Starts an authentication webhook, which finds the user of a token; returns the flags for the API server. */
  startAuthenticator(cluster: string, folder: string): Promise<{ flags: string[]; stop(): Promise<void> }>;
}

interface EksOptions {
  region: string;
  /** moto's services, which answer for clusters that tests create by EKS's API. */
  moto: Record<"eks" | "sts", AwsService>;
  /** Returns the role of a function by the function's name. */
  findRole(name: string): string | undefined;
  /** Reports whether IAM has a role. */
  hasRole(arn: string): boolean;
}

export const openEks = ({ region, moto, findRole, hasRole }: EksOptions): Eks => {
  const clusters: Eks["clusters"] = new Map();
  const roles = new Set<string>();
  /** The roles that callers have assumed, by access key. */
  const assumedRoles = new Map<string, string>();
  /** Returns the ARN of a caller: its function's role, its assumed role, or the user with its name. */
  const toPrincipal = (caller = "") =>
    findRole(caller) ?? assumedRoles.get(caller) ?? `arn:aws:iam::${ownAccount}:user/${caller}`;
  const getEntries = (cluster: EksCluster) => {
    cluster.entries ??= new Map();
    return cluster.entries;
  };

  const parse = ({ method, path, body }: AwsRequest) => {
    const [, , name = "", collection, principal] = path.split("/").map(decodeURIComponent);
    const clusterActions: Record<string, string> = { GET: "DescribeCluster" };
    const listActions: Record<string, string> = { GET: "ListAccessEntries", POST: "CreateAccessEntry" };
    const entryActions: Record<string, string> = { GET: "DescribeAccessEntry", DELETE: "DeleteAccessEntry" };
    const accessActions = principal === undefined ? listActions : entryActions;
    const actions = collection === undefined ? clusterActions : accessActions;
    const input = Object(JSON.parse(String(body) || "{}"));
    return { name, collection, principal: principal ?? input.principalArn, input, action: actions[method] ?? "" };
  };
  /** Finds the cluster that a request names, if it is in the account of the caller. */
  const findCluster = (request: AwsRequest): EksCluster | undefined => {
    const cluster = clusters.get(parse(request).name);
    const [, , , , account] = toPrincipal(readCaller(request)).split(":");
    return (cluster?.account ?? ownAccount) === account ? cluster : undefined;
  };

  const answerEntries = (request: AwsRequest): object => {
    const { name, principal, input, action } = parse(request);
    const cluster = findCluster(request);
    if (cluster === undefined)
      throw new AwsError(404, "ResourceNotFoundException", `No cluster found for name: ${name}.`);
    const entries = getEntries(cluster);
    const toOutput = (arn: string, entry: AccessEntry) => ({
      clusterName: name,
      principalArn: arn,
      type: "STANDARD",
      tags: {},
      ...entry,
      username: entry.username ?? arn.replace(/:iam:(.*):role\/(.*)$/, ":sts:$1:assumed-role/$2/{{SessionName}}"),
    });
    if (action === "ListAccessEntries") {
      // Small pages, so that callers have to read several.
      const pageSize = 2;
      const principals = [...entries.keys()];
      const first = Number(request.query.get("nextToken") ?? 0);
      const next = first + pageSize;
      const nextToken = next < principals.length ? String(next) : undefined;
      return { accessEntries: principals.slice(first, next), nextToken };
    }
    if (action === "CreateAccessEntry") {
      requireValidEntry(input, hasRole);
      if (entries.has(principal))
        throw new AwsError(
          409,
          "ResourceInUseException",
          "The specified access entry resource is already in use on this cluster.",
        );
      const { kubernetesGroups, username, type, tags } = input;
      entries.set(principal, { kubernetesGroups, username, type, tags });
      return { accessEntry: toOutput(principal, input) };
    }
    const entry = entries.get(principal);
    if (entry === undefined)
      throw new AwsError(
        404,
        "ResourceNotFoundException",
        "The specified principalArn could not be found. You can view your available access entries with 'list-access-entries'.",
      );
    if (action === "DescribeAccessEntry") return { accessEntry: toOutput(principal, entry) };
    entries.delete(principal);
    return {};
  };

  const eks: AwsService = {
    ...moto.eks,
    identify: (request) => {
      const { name, collection, principal, input, action } = parse(request);
      if (collection !== "access-entries") return moto.eks.identify(request);
      const isNew = action === "CreateAccessEntry";
      const entry: AccessEntry = isNew ? input : (clusters.get(name)?.entries?.get(principal) ?? {});
      const context: Record<string, string | string[]> = {};
      if (principal) context["eks:principalArn"] = principal;
      if (isNew) {
        context["eks:accessEntryType"] = entry.type ?? "STANDARD";
        context["eks:kubernetesGroups"] = entry.kubernetesGroups;
        if (entry.username) context["eks:username"] = entry.username;
      }
      for (const [key, value] of Object.entries(entry.tags ?? {}))
        context[`aws:${isNew ? "Request" : "Resource"}Tag/${key}`] = value;
      return { action: `eks:${action}`, name: principal ? `${name} ${principal}` : name, context };
    },
    answer: async (request) => {
      const { name, collection, action } = parse(request);
      const toReply = (body: object): AwsReply => {
        return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
      };
      if (collection === "access-entries") return toReply(answerEntries(request));
      const eksCluster = findCluster(request);
      if (action !== "DescribeCluster" || !eksCluster) return moto.eks.answer(request);
      const cluster = {
        name,
        arn: `arn:aws:eks:${region}:${eksCluster.account ?? ownAccount}:cluster/${name}`,
        status: "ACTIVE",
        endpoint: eksCluster.server,
        resourcesVpcConfig: {
          controlPlaneEgressMode: "AWS_MANAGED",
          endpointPublicAccess: true,
          endpointPrivateAccess: false,
          publicAccessCidrs: ["0.0.0.0/0"],
          ...eksCluster.network,
        },
        certificateAuthority: { data: Buffer.from(eksCluster.ca).toString("base64") },
      };
      return toReply({ cluster });
    },
  };

  const sts: AwsService = {
    ...moto.sts,
    identify: (request) => {
      const { action } = moto.sts.identify(request);
      return { action, name: request.query.get("RoleArn") ?? "" };
    },
    answer: async (request) => {
      const { query } = request;
      const role = query.get("RoleArn") ?? "";
      if (query.get("Action") !== "AssumeRole") return moto.sts.answer(request);
      if (!roles.has(role) && !hasRole(role)) {
        const caller = toPrincipal(readCaller(request));
        const sentence = `User: ${caller} is not authorized to perform: sts:AssumeRole on resource: ${role}`;
        throw new AwsError(403, "AccessDenied", sentence);
      }
      const AccessKeyId = `TAKEN${assumedRoles.size}`;
      assumedRoles.set(AccessKeyId, role);
      const Expiration = new Date(Date.now() + 3_600_000);
      const Credentials = { AccessKeyId, SecretAccessKey: "secret", SessionToken: "session", Expiration };
      const body = toXml("AssumeRoleResponse", { AssumeRoleResult: { Credentials } });
      return { status: 200, headers: xmlType, body };
    },
    refuse: refuseInQuery,
  };

  /**
   * Returns the user of a token in a cluster; undefined if the token is invalid or its principal has no access entry.
   */
  const findUser = (cluster: string, token: string) => {
    const encodedUrl = /^k8s-aws-v1\.([\w-]+)$/.exec(token)?.[1];
    const signedUrl = Buffer.from(encodedUrl ?? "", "base64url").toString();
    if (!URL.canParse(signedUrl)) return undefined;
    const { searchParams: query } = new URL(signedUrl);
    const isSigned = query.get("X-Amz-SignedHeaders")?.split(";").includes("x-k8s-aws-id");
    if (query.get("Action") !== "GetCallerIdentity" || !isSigned) return undefined;
    const principal = toPrincipal(query.get("X-Amz-Credential")?.split("/")[0]);
    const entry = clusters.get(cluster)?.entries?.get(principal);
    return entry && { username: entry.username ?? principal, groups: entry.kubernetesGroups };
  };

  return {
    clusters,
    eks,
    sts,
    roles,
    getAssumedRole: (caller = "") => assumedRoles.get(caller),
    reset: () => {
      for (const state of [clusters, roles, assumedRoles]) state.clear();
    },
    startAuthenticator: async (cluster, folder) => {
      const server = createServer(async (request, response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk);
        const { apiVersion, kind, spec } = JSON.parse(String(Buffer.concat(chunks)));
        const user = findUser(cluster, String(spec.token));
        const status = user === undefined ? { authenticated: false } : { authenticated: true, user };
        response.setHeader("content-type", "application/json");
        response.end(JSON.stringify({ apiVersion, kind, status }));
      });
      const file = join(folder, "authenticator.json");
      const address = `http://127.0.0.1:${await listen(server)}/`;
      await writeFile(
        file,
        JSON.stringify({
          apiVersion: "v1",
          kind: "Config",
          "current-context": "a",
          clusters: [{ name: "a", cluster: { server: address } }],
          contexts: [{ name: "a", context: { cluster: "a", user: "a" } }],
          users: [{ name: "a", user: {} }],
        }),
      );
      const flags = [
        `--authentication-token-webhook-config-file=${file}`,
        "--authentication-token-webhook-version=v1",
        // With its default cache, the API server would refuse a token for minutes after a first refusal.
        "--authentication-token-webhook-cache-ttl=0s",
      ];
      return { flags, stop: () => close(server) };
    },
  };
};

/** Throws if EKS would refuse a new access entry. */
const requireValidEntry = (
  { principalArn, type, kubernetesGroups, username = "" }: AccessEntry & { principalArn: string },
  hasRole: EksOptions["hasRole"],
): void => {
  const refuse = (message: string) => {
    throw new AwsError(400, "InvalidParameterException", message);
  };
  if (!/^arn:aws:iam::\d{12}:(role|user)\/.+$/.test(principalArn))
    refuse("The principalArn parameter format is not valid");
  if (principalArn.includes(":role/") && !hasRole(principalArn))
    refuse("The specified principalArn is invalid: invalid principal.");
  if (type !== "STANDARD") refuse(`the stand-in has no access entries of type ${type}`);
  for (const name of [...kubernetesGroups, username])
    if (/^(system|eks|aws|amazon|iam):/.test(name)) refuse(`The name ${name} starts with a reserved prefix`);
};
