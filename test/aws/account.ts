import { mkdtemp, rm } from "node:fs/promises";
import { request } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import {
  type AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  refuseInJson,
  refuseInQuery,
  refuseInRest,
  refuseInS3,
  startServer,
} from "./aws-service.ts";
import { type CloudFormation, openCloudFormation } from "./cloudformation.ts";
import { type CloudWatch, openCloudWatch } from "./cloudwatch.ts";
import { openGateways } from "./gateways.ts";
import { codePath, createLambda, type Lambda } from "./lambda.ts";
import { launchMoto, openStorage, type Storage } from "./moto.ts";
import { openS3, type S3 } from "./s3.ts";

// An AWS account on this machine, for every client that reads AWS_ENDPOINT_URL. Lambda, CloudFormation and the metrics
// of CloudWatch are stand-ins, as strict as AWS's documentation; moto answers for the rest. Tests can record all calls,
// break them and refuse them.

export interface Caller {
  region: string;
  endpoint: string;
  credentials: { accessKeyId: string; secretAccessKey: string };
  /** The environment for a child process. */
  env: Record<string, string>;
}

export interface Account extends CallRecorder {
  url: string;
  region: string;
  lambda: Lambda;
  cloudformation: CloudFormation;
  cloudwatch: CloudWatch;
  storage: Storage;
  s3: S3;
  /** The answers of eks:DescribeCluster by name; moto answers for other clusters. */
  clusters: Map<string, { server: string; ca: string }>;
  /** The base URL of the first stack's gateway, and the CA of its certificate. */
  baseUrl: string;
  ca: string;
  /** The environment of the default caller. */
  env: Record<string, string>;
  /** Returns a caller whose access key is this name. */
  as(caller: string): Caller;
  /** Stops the gateways of all stacks, as if the region were down; `up` starts them again. */
  down(): Promise<void>;
  up(): Promise<void>;
  /** The rules whose routes of an HTTP API have more requests than they take: it answers 429. */
  throttled: Set<string>;
  /** Empties it, and takes away what got in the way of calls. */
  reset(): Promise<void>;
  stop(): Promise<void>;
}

export const openAccount = async (region = "eu-west-1"): Promise<Account> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-account-"));
  const [moto, certificate] = await Promise.all([launchMoto(), readOrCreateServerCertificate(folder, "127.0.0.1")]);
  const storage = openStorage(moto.url, region);
  const cloudwatch = openCloudWatch();
  const surroundings = (name: string) => as(name).env;
  const lambda = await createLambda({ region, artefact: storage.read, watch: cloudwatch, surroundings });
  const doors = await openGateways(certificate, lambda, cloudwatch);
  const ear: CallRecorder = { heard: [], fault: undefined, allow: undefined };
  const clusters = new Map<string, { server: string; ca: string }>();
  const s3 = openS3(createMotoService(moto.url, "s3"), ear);
  const account = Object.assign(ear, {
    clusters,
    s3,
    lambda,
    cloudwatch,
    storage,
    region,
    baseUrl: doors.baseUrl,
    ca: certificate.ca,
  });
  const cloudformation = openCloudFormation({ lambda, storage, doors, ear: account, region });

  const own: Record<string, AwsService> = { lambda, cloudformation, monitoring: cloudwatch, s3 };
  const { url, stop } = await startServer((scope, asked) => {
    if (scope === undefined) return asked.path.startsWith(codePath) ? lambda : createMotoService(moto.url, "");
    const service = own[scope] ?? createMotoService(moto.url, scope);
    return scope === "eks" ? addClusters(clusters, region, service) : service;
  }, account);
  lambda.base = url;

  const as = (caller: string): Caller => {
    const credentials = { accessKeyId: caller, secretAccessKey: "secret" };
    const env = {
      AWS_ENDPOINT_URL: url,
      AWS_REGION: region,
      AWS_ACCESS_KEY_ID: caller,
      AWS_SECRET_ACCESS_KEY: "secret",
      AWS_EC2_METADATA_DISABLED: "true",
      SLS_AWS_MONITORING_FREQUENCY: "100",
    };
    return { region, endpoint: url, credentials, env };
  };
  return Object.assign(account, {
    ...{ url, cloudformation, as, env: as("somebody").env, down: doors.down, up: doors.up, throttled: doors.throttled },
    reset: async () => {
      await cloudformation.settled();
      for (const { id } of cloudformation.stacks.values()) await doors.close(id);
      for (const kept of [cloudformation.stacks, lambda.functions, clusters, doors.throttled]) kept.clear();
      cloudwatch.clear();
      await moto.reset();
      account.heard.length = 0;
      s3.ahead = 0;
      Object.assign(account, { fault: undefined, allow: undefined });
    },
    stop: async () => {
      await cloudformation.settled();
      await Promise.all([stop(), doors.stop(), lambda.stop(), moto.stop()]);
      await rm(folder, { recursive: true, force: true });
    },
  });
};

/** Creates a service that forwards its calls to moto. */
export const createMotoService = (moto: string, scope: string): AwsService => ({
  about: (asked) => describeCall(scope, asked),
  answer: (asked) =>
    new Promise<AwsReply>((resolve, reject) => {
      const { method, target, body } = asked;
      const headers = Object.fromEntries(Object.entries(asked.headers).filter(([name]) => !ofConnection.has(name)));
      const asking = request(`${moto}${target}`, { method, headers: { ...headers, "content-length": body.length } });
      asking.on("error", reject);
      asking.on("response", async (response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk);
        const kept = Object.entries(response.headers).filter(([name]) => !ofConnection.has(name));
        const told: Record<string, string | string[]> = {};
        for (const [name, value] of kept) if (value !== undefined) told[name] = value;
        resolve({ status: response.statusCode ?? 502, headers: told, body: Buffer.concat(chunks) });
      });
      asking.end(body);
    }),
  refuse: chooseErrorFormat(scope),
});

/** Wraps EKS with answers for these clusters. */
const addClusters = (clusters: Account["clusters"], region: string, eks: AwsService): AwsService => ({
  ...eks,
  answer: async (asked) => {
    const { action, name } = eks.about(asked);
    const known = clusters.get(name);
    if (action !== "eks:DescribeCluster" || !known) return eks.answer(asked);
    const cluster = {
      ...{ name, arn: `arn:aws:eks:${region}:123456789012:cluster/${name}`, status: "ACTIVE", endpoint: known.server },
      certificateAuthority: { data: Buffer.from(known.ca).toString("base64") },
    };
    return { status: 200, headers: { "content-type": "application/json" }, body: JSON.stringify({ cluster }) };
  },
});

const ofConnection = new Set(["connection", "expect", "keep-alive", "transfer-encoding"]);

const chooseErrorFormat = (scope: string): ((refusal: AwsError) => AwsReply) => {
  if (scope === "s3") return refuseInS3;
  if (["sts", "iam", "ec2", "sns"].includes(scope)) return refuseInQuery;
  return ["eks", "apigateway"].includes(scope) ? refuseInRest : refuseInJson;
};

/** Returns the action and resource of a call, as a policy names them. */
const describeCall = (scope: string, asked: AwsRequest): { action: string; name: string } => {
  const target = asked.headers["x-amz-target"];
  if (scope === "s3") return describeS3Call(asked);
  if (typeof target === "string") {
    const { Name, Path, SecretId } = Object(JSON.parse(String(asked.body) || "{}"));
    return { action: `${scope}:${target.replace(/^.*\./, "")}`, name: String(Name ?? Path ?? SecretId ?? "") };
  }
  const form = new URLSearchParams(String(asked.body));
  const action = form.get("Action") ?? asked.query.get("Action");
  if (action !== null) return { action: `${scope}:${action}`, name: form.get("RoleName") ?? "" };
  const parts = asked.path.split("/").map(decodeURIComponent);
  if (scope === "eks" && parts[1] === "clusters") {
    const [, , name, what] = parts;
    const isOne: Record<string, string> = { GET: "DescribeCluster", DELETE: "DeleteCluster" };
    const isAny: Record<string, string> = { GET: "ListClusters", POST: "CreateCluster" };
    const known = what === undefined ? (name ? isOne : isAny)[asked.method] : undefined;
    return { action: `eks:${known ?? `${asked.method} ${asked.path}`}`, name: name ?? "" };
  }
  return { action: `${scope}:${asked.method} ${asked.path}`, name: parts.at(-1) ?? "" };
};

/** Returns the action that a call of S3 needs; its method and query determine the call. */
const describeS3Call = ({ method, path, query }: AwsRequest): { action: string; name: string } => {
  const [, bucket = "", ...rest] = path.split("/").map(decodeURIComponent);
  const key = rest.join("/");
  const named = (action: string) => ({ action: `s3:${action}`, name: key ? `${bucket}/${key}` : bucket });
  if (bucket === "") return named("ListAllMyBuckets");
  if (key !== "") {
    const actions: Record<string, string> = { GET: "GetObject", HEAD: "GetObject", DELETE: "DeleteObject" };
    if (query.has("tagging")) return named(`${method === "GET" ? "Get" : "Put"}ObjectTagging`);
    if (method === "DELETE" && query.has("uploadId")) return named("AbortMultipartUpload");
    return named(actions[method] ?? "PutObject");
  }
  if (method === "POST" && query.has("delete")) return named("DeleteObject");
  if (query.has("versions")) return named("ListBucketVersions");
  const of = ["policy", "encryption", "versioning", "tagging", "location", "lifecycle", "publicAccessBlock"].find(
    (one) => query.has(one),
  );
  if (of !== undefined) {
    const verb = { GET: "Get", PUT: "Put", DELETE: "Delete" }[method] ?? method;
    return named(`${verb}Bucket${of.replace(/^./, (letter) => letter.toUpperCase())}`);
  }
  const actions: Record<string, string> = { PUT: "CreateBucket", DELETE: "DeleteBucket" };
  return named(actions[method] ?? "ListBucket");
};
