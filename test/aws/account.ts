import { mkdtemp, rm } from "node:fs/promises";
import http from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { readOrCreateServerCertificate } from "../../infra/keys/keys.ts";
import {
  AwsError,
  type AwsReply,
  type AwsRequest,
  type AwsService,
  type CallRecorder,
  type RecordedCall,
  refuseInJson,
  refuseInQuery,
  refuseInRest,
  refuseInS3,
  startServer,
  toXml,
  xmlType,
} from "./aws-service.ts";
import { type CloudFormation, openCloudFormation } from "./cloudformation.ts";
import { type CloudWatch, openCloudWatch } from "./cloudwatch.ts";
import { openDynamoDb } from "./dynamodb-service.ts";
import { type Eks, openEks } from "./eks.ts";
import { openGateways } from "./gateways.ts";
import { codePath, createLambda, defaultQuotas, type Lambda } from "./lambda.ts";
import { type Logs, openLogs } from "./logs.ts";
import { launchMoto, openStorage, type Storage } from "./moto.ts";
import { findAllowingStatement, listIamCalls, placeStatements } from "./rights.ts";
import { openS3, type S3 } from "./s3.ts";

// An AWS account on this machine, for every client that reads AWS_ENDPOINT_URL. Lambda, CloudFormation, S3's locks and
// CloudWatch's metrics and logs are stand-ins, which are as strict as AWS's documentation. moto answers all other
// calls. A test can record calls, make them fail and refuse them.

/** What a client needs in order to call AWS under one access key. */
export interface Caller {
  region: string;
  endpoint: string;
  credentials: { accessKeyId: string; secretAccessKey: string };
  /** The environment for a child process. */
  env: Record<string, string>;
}

/** The fields of DynamoDB's answers that tests read. */
interface TableAnswer {
  __type?: string;
  Items: { key: { S: string } }[];
}

export interface Account extends CallRecorder {
  url: string;
  region: string;
  lambda: Lambda;
  cloudformation: CloudFormation;
  cloudwatch: CloudWatch;
  logs: Logs;
  storage: Storage;
  s3: S3;
  /** EKS and its clusters. moto answers for clusters that aren't in `clusters`. */
  eks: Eks;
  clusters: Eks["clusters"];
  /** The number of confirmed subscriptions of SNS topics, by the topics' ARNs. */
  topics: Map<string, number>;
  /** The base URL of the first stack's gateway, and the CA of its certificate. */
  baseUrl: string;
  ca: string;
  /** The environment of the default caller. */
  env: Record<string, string>;
  /** Returns a caller whose access key is this name. */
  actAs(caller: string): Caller;
  /** Calls DynamoDB with the access key of a caller, such as a function's name; returns the status and the answer. */
  callTable(caller: string, operation: string, input: object): Promise<{ status: number; body: TableAnswer }>;
  /** Stops the gateways of all stacks, as if the region were down; `startGateways` starts them again. */
  stopGateways(): Promise<void>;
  startGateways(): Promise<void>;
  /** The rules whose routes of an HTTP API are throttled: the gateway answers 429. */
  throttledRules: Set<string>;
  /** Deletes everything in the account, and removes faults and refusals. */
  reset(): Promise<void>;
  stop(): Promise<void>;
}

/** Opens an account. `isInProcess`: functions run in this process instead of processes of their own. */
export const openAccount = async (
  region = "eu-west-1",
  { isInProcess, accountId }: { isInProcess?: boolean; accountId?: string } = {},
): Promise<Account> => {
  const folder = await mkdtemp(join(tmpdir(), "postern-account-"));
  const [moto, certificate] = await Promise.all([
    launchMoto(accountId),
    readOrCreateServerCertificate(folder, "127.0.0.1"),
  ]);
  const storage = openStorage(moto.url, region);
  const cloudwatch = openCloudWatch(region);
  const logs = openLogs(cloudwatch, createMotoService(moto.url, "logs"));
  const lambda = await createLambda({
    region,
    readArtefact: storage.read,
    metrics: cloudwatch,
    logs,
    isInProcess,
    buildVariables: (name) => actAs(name).env,
    allowsLambda: (role, action) =>
      findAllowingStatement(listRoleStatements(role), { action, resource: "*" }) !== undefined,
  });
  const listResources = () => [...cloudformation.stacks.values()].flatMap(({ resources }) => [...resources.values()]);
  const listRoleStatements = (role: string) => {
    const { Policies } = Object(listResources().find(({ attributes }) => attributes?.Arn === role)?.properties);
    return [Policies ?? []].flat().flatMap(({ PolicyDocument }) => placeStatements(PolicyDocument, role));
  };
  const gateways = await openGateways(certificate, lambda, { metrics: cloudwatch, logs });
  const recorder: CallRecorder = { recordedCalls: [], fault: undefined, allow: undefined };
  const topics = new Map<string, number>();
  const eks = openEks({
    region,
    moto: { eks: createMotoService(moto.url, "eks"), sts: createMotoService(moto.url, "sts") },
    findRole: (name) => lambda.functions.get(name)?.latest.role,
    hasRole: (arn) => listResources().some(({ attributes }) => attributes?.Arn === arn),
  });
  const { clusters } = eks;
  const s3 = openS3(createMotoService(moto.url, "s3"), recorder);
  const account = Object.assign(recorder, {
    eks,
    clusters,
    topics,
    s3,
    lambda,
    cloudwatch,
    logs,
    storage,
    region,
    baseUrl: gateways.baseUrl,
    ca: certificate.ca,
  });
  const cloudformation = openCloudFormation({ lambda, logs, storage, gateways, cloudwatch, recorder: account, region });

  const standIns: Record<string, AwsService> = {
    lambda,
    cloudformation,
    logs,
    s3,
    eks: eks.eks,
    sts: eks.sts,
    monitoring: cloudwatch,
    sns: openTopics(topics),
    dynamodb: openDynamoDb(createMotoService(moto.url, "dynamodb")),
  };
  /** Reports whether a caller may make a call. The caller's role decides; without a role, the test's `allow` does. */
  const allow = (call: RecordedCall): boolean => {
    const role = lambda.functions.get(call.caller ?? "")?.latest.role ?? eks.getAssumedRole(call.caller);
    // The roles of other accounts have all rights there.
    if (role === undefined || eks.roles.has(role)) return account.allow?.(call) ?? true;
    const statements = listRoleStatements(role);
    return listIamCalls(call).every((iamCall) => findAllowingStatement(statements, iamCall) !== undefined);
  };
  const { url, stop } = await startServer(
    (serviceName, request) => {
      if (serviceName === undefined)
        return request.path.startsWith(codePath) ? lambda : createMotoService(moto.url, "");
      return standIns[serviceName] ?? createMotoService(moto.url, serviceName);
    },
    // The recorder is the account, but with the `allow` from above instead of the test's.
    Object.create(account, { allow: { value: allow } }),
  );
  lambda.base = url;

  const actAs = (caller: string): Caller => {
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
    url,
    cloudformation,
    actAs,
    env: actAs("tester").env,
    callTable: async (caller: string, operation: string, input: object) => {
      const headers = {
        "content-type": "application/x-amz-json-1.0",
        "x-amz-target": `DynamoDB_20120810.${operation}`,
        authorization: `AWS4-HMAC-SHA256 Credential=${caller}/20260101/${region}/dynamodb/aws4_request`,
      };
      const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(input) });
      return { status: answer.status, body: Object(await answer.json()) };
    },
    stopGateways: gateways.stopAll,
    startGateways: gateways.startAll,
    throttledRules: gateways.throttledRules,
    reset: async () => {
      await cloudformation.waitUntilIdle();
      for (const { id } of cloudformation.stacks.values()) await gateways.close(id);
      for (const state of [cloudformation.stacks, cloudformation.retained, lambda.functions, lambda.deletedRoles])
        state.clear();
      eks.reset();
      for (const state of [topics, gateways.throttledRules, logs.groups]) state.clear();
      cloudwatch.clear();
      cloudwatch.alarms.clear();
      cloudwatch.dashboards.clear();
      cloudwatch.clockOffset = 0;
      cloudwatch.delayMilliseconds = 0;
      Object.assign(lambda, { propagationMilliseconds: 0, warmingMilliseconds: 30, warmFailure: undefined });
      await moto.reset();
      account.recordedCalls.length = 0;
      s3.clockOffset = 0;
      Object.assign(lambda, { quotas: { ...defaultQuotas }, isRateLimited: false });
      Object.assign(account, { fault: undefined, allow: undefined });
    },
    stop: async () => {
      await cloudformation.waitUntilIdle();
      await Promise.all([stop(), gateways.stopAll(), lambda.stop(), moto.stop()]);
      await rm(folder, { recursive: true, force: true });
    },
  });
};

/** Creates a service that forwards its calls to moto. */
export const createMotoService = (moto: string, service: string): AwsService => ({
  identify: (request) => describeCall(service, request),
  answer: (request) =>
    new Promise<AwsReply>((resolve, reject) => {
      const { method, target, body, query } = request;
      const headers: http.OutgoingHttpHeaders = Object.fromEntries(
        Object.entries(request.headers).filter(([name]) => !connectionHeaders.has(name)),
      );
      // moto finds the service of a call by the header `authorization`, which a presigned call doesn't have.
      if (service === "sts") headers.authorization ??= `AWS4-HMAC-SHA256 Credential=${query.get("X-Amz-Credential")}`;
      const outgoing = http.request(`${moto}${target}`, {
        method,
        headers: { ...headers, "content-length": body.length },
      });
      outgoing.on("error", reject);
      outgoing.on("response", async (response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk);
        const kept = Object.entries(response.headers).filter(([name]) => !connectionHeaders.has(name));
        const replyHeaders: Record<string, string | string[]> = {};
        for (const [name, value] of kept) if (value !== undefined) replyHeaders[name] = value;
        resolve({ status: response.statusCode ?? 502, headers: replyHeaders, body: Buffer.concat(chunks) });
      });
      outgoing.end(body);
    }),
  refuse: chooseErrorFormat(service),
});

/** Answers for SNS. Postern reads only the number of a topic's subscriptions, which moto doesn't count. */
const openTopics = (topics: Account["topics"]): AwsService => ({
  identify: ({ query }) => ({ action: `sns:${query.get("Action")}`, name: query.get("TopicArn") ?? "" }),
  answer: async ({ query }) => {
    if (query.get("Action") !== "GetTopicAttributes")
      throw new AwsError(400, "InvalidAction", `the stand-in of SNS knows no ${query.get("Action")}`);
    const value = topics.get(query.get("TopicArn") ?? "");
    if (value === undefined) throw new AwsError(404, "NotFound", "Topic does not exist");
    const Attributes = { entry: { key: "SubscriptionsConfirmed", value } };
    const body = toXml("GetTopicAttributesResponse", { GetTopicAttributesResult: { Attributes } });
    return { status: 200, headers: xmlType, body };
  },
  refuse: refuseInQuery,
});

const connectionHeaders = new Set(["connection", "expect", "keep-alive", "transfer-encoding"]);

const chooseErrorFormat = (service: string): ((refusal: AwsError) => AwsReply) => {
  if (service === "s3") return refuseInS3;
  if (["sts", "iam", "ec2", "sns"].includes(service)) return refuseInQuery;
  return ["eks", "apigateway"].includes(service) ? refuseInRest : refuseInJson;
};

/** Returns the action and resource of a call, as a policy names them. */
const describeCall = (service: string, request: AwsRequest): { action: string; name: string } => {
  const target = request.headers["x-amz-target"];
  if (service === "s3") return describeS3Call(request);
  if (typeof target === "string") {
    const { Name, Path, SecretId } = Object(JSON.parse(String(request.body) || "{}"));
    return { action: `${service}:${target.replace(/^.*\./, "")}`, name: String(Name ?? Path ?? SecretId ?? "") };
  }
  const form = new URLSearchParams(String(request.body));
  const action = form.get("Action") ?? request.query.get("Action");
  if (action !== null) return { action: `${service}:${action}`, name: form.get("RoleName") ?? "" };
  const parts = request.path.split("/").map(decodeURIComponent);
  if (service === "eks" && parts[1] === "clusters") {
    const [, , name, subresource] = parts;
    const objectActions: Record<string, string> = { GET: "DescribeCluster", DELETE: "DeleteCluster" };
    const collectionActions: Record<string, string> = { GET: "ListClusters", POST: "CreateCluster" };
    const actions = name ? objectActions : collectionActions;
    const action = subresource === undefined ? actions[request.method] : undefined;
    return { action: `eks:${action ?? `${request.method} ${request.path}`}`, name: name ?? "" };
  }
  return { action: `${service}:${request.method} ${request.path}`, name: parts.at(-1) ?? "" };
};

/** Returns the action of a call of S3, as a policy names it. The method, path and query determine the action. */
const describeS3Call = ({ method, path, query }: AwsRequest): { action: string; name: string } => {
  const [, bucket = "", ...rest] = path.split("/").map(decodeURIComponent);
  const key = rest.join("/");
  const toCall = (action: string) => ({ action: `s3:${action}`, name: key ? `${bucket}/${key}` : bucket });
  if (bucket === "") return toCall("ListAllMyBuckets");
  if (key !== "") {
    const actions: Record<string, string> = { GET: "GetObject", HEAD: "GetObject", DELETE: "DeleteObject" };
    if (query.has("tagging")) return toCall(`${method === "GET" ? "Get" : "Put"}ObjectTagging`);
    if (method === "DELETE" && query.has("uploadId")) return toCall("AbortMultipartUpload");
    return toCall(actions[method] ?? "PutObject");
  }
  if (method === "POST" && query.has("delete")) return toCall("DeleteObject");
  if (query.has("versions")) return toCall("ListBucketVersions");
  const subresources = "policy encryption versioning tagging location lifecycle publicAccessBlock".split(" ");
  const subresource = subresources.find((name) => query.has(name));
  if (subresource !== undefined) {
    const verb = { GET: "Get", PUT: "Put", DELETE: "Delete" }[method] ?? method;
    return toCall(`${verb}Bucket${subresource.replace(/^./, (letter) => letter.toUpperCase())}`);
  }
  const actions: Record<string, string> = { PUT: "CreateBucket", DELETE: "DeleteBucket" };
  return toCall(actions[method] ?? "ListBucket");
};
