import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { copyFile, readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import {
  CloudFormation,
  paginateListStackResources,
  type StackResourceSummary,
  waitUntilChangeSetCreateComplete,
  waitUntilStackCreateComplete,
  waitUntilStackDeleteComplete,
  waitUntilStackImportComplete,
} from "#aws/client-cloudformation";
import { toList, toMap } from "#lib/json.ts";
import { Complaint, toSentence } from "../cli/complaint.ts";
import { getProjectRoot, packageRoot } from "../cli/roots.ts";
import { openAwsClient } from "./client.ts";
import type { StageLockGuard } from "./guard.ts";

/** A CloudFormation template. */
export interface StackTemplate {
  Resources: Record<string, { Type: string; Properties?: Record<string, unknown>; [key: string]: unknown }>;
  Outputs?: Record<string, unknown>;
  [key: string]: unknown;
}

/** An inline policy of an IAM role. */
interface RolePolicy {
  PolicyName: string;
  PolicyDocument: { Statement: { Effect: "Allow" | "Deny"; Action: string | string[]; Resource: unknown }[] };
}

/** Returns the inline policies of an IAM role in a template. */
export const listRolePolicies = (role: StackTemplate["Resources"][string] | undefined): RolePolicy[] =>
  toList(role?.Properties?.Policies) as RolePolicy[];

/** A resource of a stack. */
interface StackResource {
  /** The logical id. */
  id: string;
  type: string;
  /** The physical id: the name or ARN in AWS. */
  name: string;
}

/** The CloudFormation stack of a stage. It points the alias `live` at a version only when it creates a function. */
export interface StageStack {
  /** Returns the template that was deployed last; undefined if there is no stack, or if it has only its bucket. */
  readTemplate(): Promise<StackTemplate | undefined>;
  readOutputs(): Promise<Record<string, string>>;
  /** Returns CloudFormation's status of the stack, such as UPDATE_COMPLETE. */
  readStatus(): Promise<string | undefined>;
  /** Returns the name of the bucket with osls's artefacts and the stage's lock. */
  findBucket(): Promise<string | undefined>;
  /** Returns the logical ids of the stack's Lambda functions. The list is empty if there is no stack. */
  listFunctionIds(): Promise<string[]>;
  /** Creates the stack with only its bucket, unless it exists. Waits if another command is creating it. */
  createBucket(): Promise<void>;
  /** Returns the stack's resources. The list is empty if there is no stack. */
  listResources(): Promise<StackResource[]>;
  /**
   * Imports existing log groups into the stack. `ids` are their logical ids in the template. Without the import,
   * CloudFormation would try to create them, and fail.
   */
  importLogGroups(ids: string[], template: StackTemplate): Promise<void>;
  /** Returns how many of the stack's resources were created or changed after the time `since`. */
  countDone(since: Date): Promise<number>;
  deploy(): Promise<void>;
  remove(): Promise<void>;
}

/** The logical id that osls gives the deployment bucket. The id of the bucket's policy begins with the same text. */
const bucketId = "ServerlessDeploymentBucket";
const functionType = "AWS::Lambda::Function";
export const logGroupType = "AWS::Logs::LogGroup";
export const queryDefinitionType = "AWS::Logs::QueryDefinition";
export const alarmType = "AWS::CloudWatch::Alarm";
/** The states of a resource that doesn't exist, or that the stack doesn't have any more. */
const goneStates = /^(CREATE_FAILED|DELETE_IN_PROGRESS|DELETE_COMPLETE|DELETE_SKIPPED)$/;
const getPackagedFile = (name: string): string => join(getProjectRoot(), ".serverless", name);
/** The file of osls with a template that has only the bucket. */
const coreTemplate = "lib/plugins/aws/package/lib/core-cloudformation-template.json";
/** The file in .serverless that has the template for `osls deploy`. */
const stateFile = "serverless-state.json";
/**
 * The name under which Postern's serverless.yml is copied into a project that has no serverless.yml: osls reads only
 * files in the project's folder.
 */
const copiedConfig = ".serverless.yml";
/**
 * A module that ends osls when this process ends in any way: it exits when its standard input is closed, which this
 * process keeps open.
 */
const exitWithParent = `data:text/javascript,${encodeURIComponent(
  'process.stdin.once("close", () => process.exit(1)).resume().unref()',
)}`;
const run = promisify(execFile);

/** Returns the path of a file of osls. Throws if osls is not installed: only commands that deploy need it. */
const findOslsFile = (path: string): string => {
  try {
    return createRequire(join(packageRoot, "package.json")).resolve(`osls/${path}`);
  } catch {
    throw new Complaint("this command needs osls, which is not installed: npm install --save-dev osls installs it");
  }
};

/**
 * If the project has no serverless.yml, copies Postern's into the project's folder, and returns the option with which
 * the deployment tool osls reads the copy.
 */
const chooseServerlessConfig = async (): Promise<string[]> => {
  if (existsSync(join(getProjectRoot(), "serverless.yml"))) return [];
  await copyFile(join(packageRoot, "serverless.yml"), join(getProjectRoot(), copiedConfig));
  return ["--config", copiedConfig];
};

/** Runs a command of osls. If it fails, throws a Complaint with the message in its output. */
const runOsls = async (verb: string, stage: string, more: string[] = [], signal?: AbortSignal) => {
  // With --no-lazy, V8 compiles all functions at once, and Node's compile cache keeps them. osls then starts faster,
  // because its large validator isn't compiled each time.
  const program = ["--no-lazy", "--import", exitWithParent, findOslsFile("bin/serverless.js")];
  const words = [...program, verb, "--stage", stage, ...more, ...(await chooseServerlessConfig())];
  // osls ignores the region in an AWS profile, so it gets the region in a variable.
  const AWS_REGION = await new CloudFormation().config.region();
  const env = { ...process.env, AWS_REGION, NO_COLOR: "1" };
  const options = { cwd: getProjectRoot(), env, maxBuffer: 64 * 1024 * 1024, signal, killSignal: "SIGKILL" as const };
  await run(process.execPath, words, options).catch((error) => {
    signal?.throwIfAborted();
    const lines = `${error.stdout}\n${error.stderr}`.split("\n").map((line) => line.trim());
    const [first = "it ended without a message", cause] = [
      ...lines.slice(lines.findLastIndex((line) => /^(Error|Warning):?$/.test(line)) + 1),
    ].filter(Boolean);
    const sentence = first.endsWith(":") && cause !== undefined ? cause.replace(/^- /, "") : first;
    throw new Complaint(`osls ${verb} fails: ${sentence.replace(/^(Error|✖)[: ]*/, "")}`, 3);
  });
};

/**
 * Lets osls write the CloudFormation templates, from serverless.yml and dist/. Returns the template that osls would
 * deploy. The stack's tags, which are not part of a template, are added as metadata.
 */
export const packageStack = async (stage: string): Promise<StackTemplate> => {
  await runOsls("package", stage);
  const template = JSON.parse(await readFile(getPackagedFile("cloudformation-template-update-stack.json"), "utf8"));
  const { stackTags } = JSON.parse(await readFile(getPackagedFile(stateFile), "utf8")).service.provider;
  return stackTags === undefined ? template : { ...template, Metadata: { ...template.Metadata, StackTags: stackTags } };
};

/** Replaces the CloudFormation template that `osls deploy` will deploy. */
export const replacePackagedTemplate = async (template: StackTemplate): Promise<void> => {
  const file = getPackagedFile(stateFile);
  const state = JSON.parse(await readFile(file, "utf8"));
  state.service.provider.compiledCloudFormationTemplate = template;
  await writeFile(file, JSON.stringify(state));
};

/** Reads, deploys and deletes the CloudFormation stack of a stage. */
export const openStack = (
  stage: string,
  client = openAwsClient(CloudFormation, { maxAttempts: 5 }),
  guard?: StageLockGuard,
): StageStack => {
  const StackName = `postern-${stage}`;
  const ignoreMissing = (error: Error) => {
    if (/does not exist/.test(error.message)) return undefined;
    throw error;
  };
  const describeStack = async () => (await client.describeStacks({ StackName }).catch(ignoreMissing))?.Stacks?.[0];
  const findBucket = async () => {
    const wanted = { StackName, LogicalResourceId: bucketId };
    const found = await client.describeStackResource(wanted).catch(ignoreMissing);
    return found?.StackResourceDetail?.PhysicalResourceId;
  };
  const listSummaries = async (): Promise<StackResourceSummary[]> => {
    const found: StackResourceSummary[] = [];
    for await (const { StackResourceSummaries = [] } of paginateListStackResources({ client }, { StackName }))
      found.push(...StackResourceSummaries);
    return found;
  };
  const listResources = async (): Promise<StackResource[]> =>
    ((await listSummaries().catch(ignoreMissing)) ?? [])
      .filter(({ ResourceStatus = "" }) => !goneStates.test(ResourceStatus))
      .map(({ LogicalResourceId: id = "", ResourceType: type = "", PhysicalResourceId: name = "" }) => {
        return { id, type, name };
      });
  return {
    readTemplate: async () => {
      const found = await client.getTemplate({ StackName }).catch(ignoreMissing);
      const template: StackTemplate | undefined = found?.TemplateBody && JSON.parse(found.TemplateBody);
      const hasMoreThanBucket = Object.keys(template?.Resources ?? {}).some((id) => !id.startsWith(bucketId));
      return hasMoreThanBucket ? template : undefined;
    },
    readStatus: async () => (await describeStack())?.StackStatus,
    readOutputs: async () => {
      const outputs = (await describeStack())?.Outputs ?? [];
      return Object.fromEntries(outputs.map(({ OutputKey = "", OutputValue = "" }) => [OutputKey, OutputValue]));
    },
    findBucket: findBucket,
    createBucket: async () => {
      const TemplateBody = await readFile(findOslsFile(coreTemplate), "utf8");
      const Tags = [{ Key: "STAGE", Value: stage }];
      await client.createStack({ StackName, TemplateBody, Tags }).catch((error) => {
        if (error.name !== "AlreadyExistsException") throw error;
      });
      await waitUntilStackCreateComplete({ client, maxWaitTime: 600, minDelay: 1, maxDelay: 5 }, { StackName }).catch(
        async () => {
          const { StackStatus, StackStatusReason } = (await describeStack()) ?? {};
          requireChangeableStack(stage, StackStatus);
          throw new Complaint(`the stack ${StackName} is ${StackStatus ?? "gone"}: ${StackStatusReason ?? ""}`, 3);
        },
      );
    },
    listFunctionIds: async () => (await listResources()).flatMap(({ id, type }) => (type === functionType ? [id] : [])),
    listResources,
    importLogGroups: async (ids, template) => {
      const { TemplateBody = "" } = await client.getTemplate({ StackName });
      const present: StackTemplate = JSON.parse(TemplateBody);
      const groups = ids.map((id) => {
        const { LogGroupName } = toMap(template.Resources[id]?.Properties);
        // The import has only the names. The update after it sets the other properties, such as the retention.
        return { id, LogGroupName, resource: { ...template.Resources[id], Properties: { LogGroupName } } };
      });
      const Resources = {
        ...present.Resources,
        ...Object.fromEntries(groups.map(({ id, resource }) => [id, resource])),
      };
      const set = { StackName, ChangeSetName: "postern-import" };
      // A deployment that was killed may have left a change set of this name.
      await client.deleteChangeSet(set);
      await client.createChangeSet({
        ...set,
        ChangeSetType: "IMPORT",
        TemplateBody: JSON.stringify({ ...present, Resources }),
        ResourcesToImport: groups.map(({ id, LogGroupName }) => ({
          ResourceType: logGroupType,
          LogicalResourceId: id,
          ResourceIdentifier: { LogGroupName: String(LogGroupName) },
        })),
      });
      const waiting = { client, maxWaitTime: 600, minDelay: 1, maxDelay: 5 };
      try {
        await waitUntilChangeSetCreateComplete(waiting, set);
        await client.executeChangeSet(set);
        await waitUntilStackImportComplete(waiting, { StackName });
      } catch (error) {
        const names = groups.map(({ LogGroupName }) => LogGroupName).join(", ");
        throw new Complaint(`the stack ${StackName} can't take over the log groups ${names}: ${toSentence(error)}`, 3);
      }
    },
    countDone: async (since) =>
      (await listSummaries()).filter(
        ({ ResourceStatus = "", LastUpdatedTimestamp = since }) =>
          ResourceStatus.endsWith("_COMPLETE") && LastUpdatedTimestamp > since,
      ).length,
    // Without --force, osls would deploy nothing if its artefacts are unchanged. Callers compare templates before.
    deploy: async () => {
      await guard?.check();
      await runOsls("deploy", stage, ["--package", getPackagedFile(""), "--force"], guard?.signal);
    },
    remove: async () => {
      await client.deleteStack({ StackName });
      await waitUntilStackDeleteComplete({ client, maxWaitTime: 1800, minDelay: 1, maxDelay: 10 }, { StackName }).catch(
        (error) => {
          throw new Complaint(`the stack ${StackName} could not be deleted: ${error.message}`, 3);
        },
      );
    },
  };
};

/** Throws if CloudFormation can't update a stack with this status. */
export const requireChangeableStack = (stage: string, status = ""): void => {
  const stack = `the stack postern-${stage} is ${status}`;
  if (/^(CREATE_FAILED|ROLLBACK_COMPLETE|ROLLBACK_FAILED|DELETE_FAILED|REVIEW_IN_PROGRESS)$/.test(status))
    throw new Complaint(
      `${stack}: its creation or deletion failed, and it must be created again; postern destroy --stage ${stage} --yes deletes it`,
      1,
    );
  if (status === "UPDATE_ROLLBACK_FAILED")
    throw new Complaint(
      `${stack}; aws cloudformation continue-update-rollback repairs it; then run the command again`,
      1,
    );
  if (status.endsWith("_IN_PROGRESS"))
    throw new Complaint(`${stack}: CloudFormation is changing it; run the command again when that is done`, 1);
};

/** Waits for `act` and returns its result. Until then, calls `tell` every `every` milliseconds. */
export const pollWhile = async <T>(act: Promise<T>, tell: () => Promise<void>, every = 2000): Promise<T> => {
  let hasEnded = false;
  const result = act.finally(() => {
    hasEnded = true;
  });
  result.catch(() => {});
  while (!hasEnded) {
    await Promise.race([wait(every, undefined, { ref: false }), result.catch(() => {})]);
    if (!hasEnded) await tell().catch(() => {});
  }
  return result;
};
