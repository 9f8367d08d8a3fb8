import { randomUUID } from "node:crypto";
import { setTimeout as wait } from "node:timers/promises";
import {
  waitUntilStackCreateComplete,
  waitUntilStackDeleteComplete,
  waitUntilStackUpdateComplete,
} from "@aws-sdk/client-cloudformation";
import { createEksToken } from "#lib/cluster/credentials.ts";
import { openBucket, type StageBucket } from "../../../infra/aws/bucket.ts";
import { createDynamoDbClient } from "../../../infra/aws/dynamodb.ts";
import { createFallbackForErrorNamed } from "../../../infra/aws/errors.ts";
import { openStack } from "../../../infra/aws/stack.ts";
import { openEks } from "../../../infra/clusters/eks.ts";
import { notSeen, type Suite } from "../suite.ts";
import { type Fact, observe, observeRefusal } from "./fact.ts";

// Checks facts about S3, SSM, DynamoDB, CloudFormation, STS and EKS.

/** Calls `act` with the place and the ETag of a new object in the stage's bucket, and then deletes the object. */
const withObject = async <T>(
  { http, clients }: Suite,
  act: (place: { Bucket: string; Key: string }, etag: string, bucket: StageBucket) => Promise<T>,
) => {
  const Bucket = await http.aws.stack.findBucket();
  if (Bucket === undefined) throw new Error("the stack has no bucket");
  const objectPlace = { Bucket, Key: `suite-${randomUUID()}.json` };
  const { ETag = "" } = await clients.s3.putObject({ ...objectPlace, Body: "{}" });
  return act(objectPlace, ETag, openBucket(Bucket, clients.s3)).finally(() => clients.s3.deleteObject(objectPlace));
};

const storageFacts: Fact[] = [
  {
    id: "s3-write-if-absent",
    when: "deployed",
    check: (suite) =>
      withObject(suite, (place) =>
        observeRefusal(
          () => suite.clients.s3.putObject({ ...place, Body: "[]", IfNoneMatch: "*" }),
          "PreconditionFailed",
        ),
      ),
  },
  {
    id: "s3-write-if-same",
    when: "deployed",
    check: (suite) =>
      withObject(suite, async (place, etag) => {
        const { s3 } = suite.clients;
        await s3.putObject({ ...place, Body: "[1]", IfMatch: etag });
        return observeRefusal(() => s3.putObject({ ...place, Body: "[2]", IfMatch: etag }), "PreconditionFailed");
      }),
  },
  {
    id: "s3-delete-if-same",
    when: "deployed",
    check: (suite) =>
      withObject(suite, async (place, etag) => {
        const { s3 } = suite.clients;
        await s3.putObject({ ...place, Body: "[1]" });
        return observeRefusal(() => s3.deleteObject({ ...place, IfMatch: etag }), "PreconditionFailed");
      }),
  },
  {
    id: "s3-clock",
    when: "deployed",
    check: (suite) =>
      withObject(suite, async ({ Key }, _, bucket) => {
        const { age = Number.NaN } = (await bucket.read(Key)) ?? {};
        return observe(age >= 0 && age < 60_000, `a new object is ${age} ms old by the Date of S3's answer`);
      }),
  },
  {
    id: "ssm-create-once",
    when: "deployed",
    check: async (suite) => {
      const { parameters } = suite.http.aws;
      try {
        const created = [await parameters.create("suite", "first"), await parameters.create("suite", "second")];
        const value = await parameters.read("suite");
        return observe(created.join() === "true,false" && value === "first", `created: ${created.join(", then ")}`);
      } finally {
        await parameters.remove("suite");
      }
    },
  },
  {
    id: "table-complete",
    when: "deployed",
    check: async ({ http: { aws } }) => {
      try {
        await aws.ledger.complete();
        const faults = await aws.ledger.readFaults();
        return observe(faults?.length === 0, `the new table is ${faults?.join("; ") || "complete"}`);
      } finally {
        await aws.ledger.remove();
      }
    },
  },
  {
    id: "table-protected",
    when: "deployed",
    check: async (suite) => {
      const { ledger, readAwsKeys } = suite.http.aws;
      const call = createDynamoDbClient(readAwsKeys, async () => suite.region, { check: async () => {} });
      try {
        await ledger.complete();
        const refused = await observeRefusal(
          () => call("DeleteTable", { TableName: ledger.name }),
          "ValidationException",
        );
        if (refused.outcome !== "seen") return refused;
        const isDeleted = await ledger.remove();
        return observe(isDeleted, `${refused.sentence} with deletion protection, deleted without`);
      } finally {
        await ledger.remove();
      }
    },
  },
];

// Two of these facts are about a log group. For each, observeLogGroup creates another stack with a log group, removes
// the group from the stack, imports it again, and deletes the stack.
const stackFacts: Fact[] = [
  {
    id: "stack-created-once",
    when: "deployed",
    check: ({ clients, http }) => {
      const TemplateBody = JSON.stringify({ Resources: { Bucket: { Type: "AWS::S3::Bucket" } } });
      const wanted = { StackName: `postern-${http.name}`, TemplateBody };
      return observeRefusal(() => clients.cloudformation.createStack(wanted), "AlreadyExistsException");
    },
  },
  {
    id: "stack-lists-functions",
    when: "deployed",
    check: async ({ http: { aws }, clients: { lambda } }) => {
      const listed = await aws.functions.listRules();
      const found = await Promise.all(
        listed.map((rule) => lambda.getFunctionConfiguration({ FunctionName: aws.functions.getFunctionName(rule) })),
      );
      const stages = found.map(({ Environment }) => Environment?.Variables?.POSTERN_STAGE);
      const isOwn = listed.length === 2 && stages.every((stage) => stage === aws.name);
      return observe(isOwn, `it lists ${listed.join(", ") || "none"}`);
    },
  },
  {
    id: "stack-retains",
    when: "deployed",
    check: async (suite) => {
      const { existsAfterRemoval } = await observeLogGroup(suite);
      return observe(existsAfterRemoval, `the log group is ${existsAfterRemoval ? "still there" : "gone"}`);
    },
  },
  {
    id: "stack-imports-log-group",
    when: "deployed",
    check: async (suite) => {
      const { retention, existsAfterDeletion } = await observeLogGroup(suite);
      const sentence = `imported, its retention was set to ${retention} days; without its stack, it is ${existsAfterDeletion ? "still there" : "gone"}`;
      return observe(retention === 3 && existsAfterDeletion, sentence);
    },
  },
  {
    id: "stack-keeps-alias",
    when: "afterwards",
    check: async ({ measured: { aliasAtStackChange } }) => {
      if (aliasAtStackChange === undefined) return notSeen("the stack was not changed");
      const [before, after] = aliasAtStackChange;
      return observe(before === after, `version ${before} before a change of the stack, ${after} afterwards`);
    },
  },
];

/** Whether the log group of the suite's third stack still exists. */
interface LogGroupObservations {
  /** True if the log group existed after an update of the stack had removed it from the template. */
  existsAfterRemoval: boolean;
  /** True if the log group existed after the stack, which had imported it again, was deleted. */
  existsAfterDeletion: boolean;
  /** The retention that the stack set after it had imported the log group. */
  retention: number | undefined;
}

/**
 * Creates a stack with a log group, removes the log group from the template, imports the log group into the stack
 * again, sets its retention, and deletes the stack.
 */
const observeLogGroup = async ({
  clients: { cloudformation: client, logs },
  name,
}: Suite): Promise<LogGroupObservations> => {
  const StackName = `postern-${name}-facts`;
  const logGroupName = `/aws/lambda/${StackName}`;
  const waiting = { client, maxWaitTime: 300, minDelay: 1, maxDelay: 5 };
  const Properties = { LogGroupName: logGroupName };
  const LogGroup = { Type: "AWS::Logs::LogGroup", DeletionPolicy: "Retain", Properties };
  // A stack must have a resource, also without the log group.
  const Handle = { Type: "AWS::CloudFormation::WaitConditionHandle" };
  const write = (Resources: object) => ({ StackName, TemplateBody: JSON.stringify({ Resources }) });
  const readGroup = async () => {
    const { logGroups = [] } = await logs.describeLogGroups({ logGroupNamePrefix: logGroupName });
    return logGroups.find((group) => group.logGroupName === logGroupName);
  };
  const deleteStack = async () => {
    await client.deleteStack({ StackName });
    await waitUntilStackDeleteComplete(waiting, { StackName });
  };
  try {
    await client.createStack(write({ LogGroup, Handle }));
    await waitUntilStackCreateComplete(waiting, { StackName });
    await client.updateStack(write({ Handle }));
    await waitUntilStackUpdateComplete(waiting, { StackName });
    const existsAfterRemoval = (await readGroup()) !== undefined;
    const stack = openStack(`${name}-facts`, client);
    await stack.importLogGroups(["LogGroup"], { Resources: { LogGroup } });
    const withRetention = { ...LogGroup, Properties: { ...Properties, RetentionInDays: 3 } };
    await client.updateStack(write({ Handle, LogGroup: withRetention }));
    await waitUntilStackUpdateComplete(waiting, { StackName });
    const retention = (await readGroup())?.retentionInDays;
    await deleteStack();
    return { existsAfterRemoval, retention, existsAfterDeletion: (await readGroup()) !== undefined };
  } finally {
    await deleteStack();
    await logs.deleteLogGroup({ logGroupName }).catch(createFallbackForErrorNamed("ResourceNotFoundException", {}));
  }
};

const identityFacts: Fact[] = [
  {
    id: "eks-token",
    when: "deployed",
    check: async ({ http, region }) => {
      const eks = "suite";
      const token = createEksToken({ eks, region }, await http.aws.readAwsKeys(), new Date());
      const signed = new URL(Buffer.from(token.replace("k8s-aws-v1.", ""), "base64url").toString());
      const { AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL = signed.origin } = process.env;
      const url = new URL(signed.search, AWS_ENDPOINT_URL_STS ?? AWS_ENDPOINT_URL);
      const answer = await fetch(url, { headers: { "x-k8s-aws-id": eks } });
      const [, arn] = /<Arn>([^<]+)</.exec(await answer.text()) ?? [];
      return observe(answer.status === 200 && arn !== undefined, `STS answers ${answer.status}`);
    },
  },
  {
    id: "access-entry-conditions",
    when: "deployed",
    check: async (suite) => {
      const statuses = await tryAccessEntries(suite);
      const sentence = `EKS answers ${statuses.join(", ")}: for a group of Postern, another group, a user name and another role`;
      // EKS permits only the first call, and then answers 404 because there is no such cluster.
      return observe(statuses.join() === "404,403,403,403", sentence);
    },
  },
];

/**
 * Creates a stack with a role that may create access entries under the conditions of infra/aws/iam/pipeline.yml. With
 * this role, tries to create four entries in a cluster that doesn't exist, and returns the statuses of EKS's answers.
 * 404 means that the role has the right: EKS refuses without the right before it looks for the cluster.
 */
const tryAccessEntries = async ({ clients: { cloudformation: client }, http, name, region }: Suite) => {
  const StackName = `postern-${name}-facts`;
  const waiting = { client, maxWaitTime: 300, minDelay: 1, maxDelay: 5 };
  const { partition, account } = await http.aws.readStageIdentity();
  /** The role of the users who get the entries. */
  const principalArn = `arn:${partition}:iam::${account}:role/${StackName}-some`;
  const Condition = {
    StringEquals: { "eks:accessEntryType": "STANDARD" },
    ArnLike: { "eks:principalArn": principalArn },
    "ForAllValues:StringLike": { "eks:kubernetesGroups": "postern:*" },
    Null: { "eks:username": "true" },
  };
  const Statement = [{ Effect: "Allow", Action: "eks:CreateAccessEntry", Resource: "*", Condition }];
  const Principal = { AWS: `arn:${partition}:iam::${account}:root` };
  const assumeRole = { Effect: "Allow", Action: "sts:AssumeRole", Principal };
  const creatorRole = {
    Type: "AWS::IAM::Role",
    Properties: {
      AssumeRolePolicyDocument: { Version: "2012-10-17", Statement: [assumeRole] },
      Policies: [{ PolicyName: "entries", PolicyDocument: { Version: "2012-10-17", Statement } }],
    },
  };
  const Outputs = { Role: { Value: { "Fn::GetAtt": ["Role", "Arn"] } } };
  const TemplateBody = JSON.stringify({ Resources: { Role: creatorRole }, Outputs });
  try {
    await client.createStack({ StackName, TemplateBody, Capabilities: ["CAPABILITY_IAM"] });
    await waitUntilStackCreateComplete(waiting, { StackName });
    const { Stacks = [] } = await client.describeStacks({ StackName });
    const creatorArn = String(Stacks[0]?.Outputs?.[0]?.OutputValue);
    const call = openEks({ eks: `postern-${name}-none`, region, role: creatorArn }, http.aws.readAwsKeys);
    const createEntry = async (entry: object) => {
      const body = { type: "STANDARD", principalArn, ...entry };
      return (await call({ method: "POST", path: ["access-entries"], body })).status;
    };
    const suiteGroup = { kubernetesGroups: ["postern:some"] };
    // IAM may need some seconds until it knows the new role and its right.
    const createEntryOnceRoleIsKnown = async (): Promise<number> => {
      for (const until = Date.now() + 60_000; ; await wait(2000)) {
        const status = await createEntry(suiteGroup).catch(() => 403);
        if (status !== 403 || Date.now() > until) return status;
      }
    };
    return [
      await createEntryOnceRoleIsKnown(),
      await createEntry({ kubernetesGroups: ["admins"] }),
      await createEntry({ ...suiteGroup, username: "admin" }),
      await createEntry({ ...suiteGroup, principalArn: `${principalArn}-other` }),
    ];
  } finally {
    await client.deleteStack({ StackName });
    await waitUntilStackDeleteComplete(waiting, { StackName });
  }
};

export const storageAndStackFacts: Fact[] = [...storageFacts, ...stackFacts, ...identityFacts];
