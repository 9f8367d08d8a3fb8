import { execFile } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import {
  CloudFormation,
  paginateListStackResources,
  waitUntilStackCreateComplete,
  waitUntilStackDeleteComplete,
} from "@aws-sdk/client-cloudformation";
import { Complaint } from "../cli/complaint.ts";
import type { Guard } from "./guard.ts";

/** What CloudFormation makes, as far as we look at it. */
export interface Template {
  Resources: Record<string, { Type: string; Properties?: Record<string, unknown>; [key: string]: unknown }>;
  Outputs?: Record<string, unknown>;
  [key: string]: unknown;
}

/** A stage's stack: what surrounds the functions. Which version of them is live, it says once, when it makes them. */
export interface Stack {
  /** As it was deployed last; undefined where there is none, or nothing but its bucket. */
  template(): Promise<Template | undefined>;
  outputs(): Promise<Record<string, string>>;
  /** As CloudFormation calls it, for instance UPDATE_COMPLETE. */
  status(): Promise<string | undefined>;
  /** Where osls puts artefacts, and where the lock is. */
  bucket(): Promise<string | undefined>;
  /** Makes the stack with nothing but its bucket, unless there is a stack; waits where another command makes it. */
  makeBucket(): Promise<void>;
  /** How many resources have been made or changed since then. */
  done(since: Date): Promise<number>;
  /** Has osls deploy what it packaged. */
  deploy(): Promise<void>;
  remove(): Promise<void>;
}

/** As osls calls it; its policy begins with the same. */
const bucketId = "ServerlessDeploymentBucket";
const root = fileURLToPath(new URL("../../", import.meta.url));
const packaged = join(root, ".serverless");
const { resolve } = createRequire(import.meta.url);
const osls = resolve("osls/bin/serverless.js");
/** The stack that osls itself would begin with. */
const coreTemplate = resolve("osls/lib/plugins/aws/package/lib/core-cloudformation-template.json");
/** Ends osls when this process has ended, however it did: its standard input is a pipe that this process holds. */
const endWithUs = `data:text/javascript,${encodeURIComponent(
  'process.stdin.once("close", () => process.exit(1)).resume().unref()',
)}`;
const run = promisify(execFile);

/** Runs osls until the signal ends it, and has what it complains of be a sentence. */
const runOsls = async (verb: string, stage: string, more: string[] = [], signal?: AbortSignal) => {
  const words = ["--import", endWithUs, osls, verb, "--stage", stage, ...more];
  // It looks for a region in the environment alone, and would take another than everything here where a profile names it.
  const AWS_REGION = await new CloudFormation().config.region();
  const env = { ...process.env, AWS_REGION, NO_COLOR: "1" };
  const options = { cwd: root, env, maxBuffer: 64 * 1024 * 1024, signal, killSignal: "SIGKILL" as const };
  await run(process.execPath, words, options).catch((error) => {
    signal?.throwIfAborted();
    const said = `${error.stdout}\n${error.stderr}`.split("\n").map((line) => line.trim());
    const [first = "it ends without a word"] = [
      ...said.slice(said.findLastIndex((line) => /^(Error|Warning):?$/.test(line)) + 1),
    ].filter(Boolean);
    throw new Complaint(`osls ${verb} fails: ${first.replace(/^(Error|✖)[: ]*/, "")}`, 3);
  });
};

/** Has osls write the stack's templates, out of serverless.yml and dist/; answers the one that it would deploy. */
export const packageStack = async (stage: string): Promise<Template> => {
  await runOsls("package", stage);
  return JSON.parse(await readFile(join(packaged, "cloudformation-template-update-stack.json"), "utf8"));
};

/** Has osls deploy this instead: it takes the template from its state. */
export const repackage = async (template: Template): Promise<void> => {
  const file = join(packaged, "serverless-state.json");
  const state = JSON.parse(await readFile(file, "utf8"));
  state.service.provider.compiledCloudFormationTemplate = template;
  await writeFile(file, JSON.stringify(state));
};

export const openStack = (stage: string, client = new CloudFormation({ maxAttempts: 5 }), guard?: Guard): Stack => {
  const StackName = `postern-${stage}`;
  const unlessMissing = (error: Error) => {
    if (/does not exist/.test(error.message)) return undefined;
    throw error;
  };
  const described = async () => (await client.describeStacks({ StackName }).catch(unlessMissing))?.Stacks?.[0];
  const bucket = async () => {
    const wanted = { StackName, LogicalResourceId: bucketId };
    const found = await client.describeStackResource(wanted).catch(unlessMissing);
    return found?.StackResourceDetail?.PhysicalResourceId;
  };
  return {
    template: async () => {
      const found = await client.getTemplate({ StackName }).catch(unlessMissing);
      const template: Template | undefined = found?.TemplateBody && JSON.parse(found.TemplateBody);
      const isBegun = Object.keys(template?.Resources ?? {}).some((id) => !id.startsWith(bucketId));
      return isBegun ? template : undefined;
    },
    status: async () => (await described())?.StackStatus,
    outputs: async () => {
      const outputs = (await described())?.Outputs ?? [];
      return Object.fromEntries(outputs.map(({ OutputKey = "", OutputValue = "" }) => [OutputKey, OutputValue]));
    },
    bucket,
    makeBucket: async () => {
      const TemplateBody = await readFile(coreTemplate, "utf8");
      const Tags = [{ Key: "STAGE", Value: stage }];
      await client.createStack({ StackName, TemplateBody, Tags }).catch((error) => {
        if (error.name !== "AlreadyExistsException") throw error;
      });
      await waitUntilStackCreateComplete({ client, maxWaitTime: 600, minDelay: 1, maxDelay: 5 }, { StackName }).catch(
        async () => {
          const { StackStatus, StackStatusReason } = (await described()) ?? {};
          requireChangeableStack(stage, StackStatus);
          throw new Complaint(`the stack ${StackName} is ${StackStatus ?? "gone"}: ${StackStatusReason ?? ""}`, 3);
        },
      );
    },
    done: async (since) => {
      let count = 0;
      for await (const { StackResourceSummaries = [] } of paginateListStackResources({ client }, { StackName }))
        for (const { ResourceStatus = "", LastUpdatedTimestamp } of StackResourceSummaries)
          if (ResourceStatus.endsWith("_COMPLETE") && (LastUpdatedTimestamp ?? since) > since) count += 1;
      return count;
    },
    // That something differs is known: what it would find out by itself is whether its own artefacts do.
    deploy: async () => {
      await guard?.check();
      await runOsls("deploy", stage, ["--package", packaged, "--force"], guard?.signal);
    },
    remove: async () => {
      await client.deleteStack({ StackName });
      await waitUntilStackDeleteComplete({ client, maxWaitTime: 1800, minDelay: 1, maxDelay: 10 }, { StackName }).catch(
        (error) => {
          throw new Complaint(`the stack ${StackName} is not gone: ${error.message}`, 3);
        },
      );
    },
  };
};

/** A Complaint with what would help, where CloudFormation would take no change. */
export const requireChangeableStack = (stage: string, status = ""): void => {
  const stack = `the stack postern-${stage} is ${status}`;
  if (/^(CREATE_FAILED|ROLLBACK_COMPLETE|ROLLBACK_FAILED|DELETE_FAILED|REVIEW_IN_PROGRESS)$/.test(status))
    throw new Complaint(
      `${stack}: it was never made whole, or is half gone, and can only be made anew; postern destroy --stage ${stage} --yes takes it away`,
      1,
    );
  if (status === "UPDATE_ROLLBACK_FAILED")
    throw new Complaint(`${stack}; aws cloudformation continue-update-rollback mends it, then run this again`, 1);
  if (status.endsWith("_IN_PROGRESS"))
    throw new Complaint(`${stack}: CloudFormation is at work on it; run this again when it is done`, 1);
};

/** Tells from time to time, until it is over, how far it has come. */
export const during = async <T>(act: Promise<T>, tell: () => Promise<void>, every = 2000): Promise<T> => {
  let over = false;
  const settled = act.finally(() => {
    over = true;
  });
  settled.catch(() => {});
  while (!over) {
    await Promise.race([wait(every, undefined, { ref: false }), settled.catch(() => {})]);
    // That it can't be told doesn't matter.
    if (!over) await tell().catch(() => {});
  }
  return settled;
};
