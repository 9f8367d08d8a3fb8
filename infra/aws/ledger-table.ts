import { setTimeout as wait } from "node:timers/promises";
import { toMap } from "#lib/json.ts";
import { buildLedgerTableName } from "../catalogue/rule-names.ts";
import { Complaint } from "../cli/complaint.ts";
import type { DynamoDbCall } from "./dynamodb.ts";
import { createFallbackForErrorNamed, isErrorNamed } from "./errors.ts";

/** The DynamoDB table with the ledger of a stage. It belongs to no stack, so it stays when the stage is destroyed. */
export interface LedgerTable {
  name: string;
  /** Returns what is wrong with the table: an empty list if it is complete, undefined if there is no table. */
  readFaults(): Promise<string[] | undefined>;
  /** Reads values by their keys. A value may be some seconds old. */
  readValues(keys: readonly string[]): Promise<Map<string, unknown>>;
  /** Creates the table, or corrects its settings, and waits until it is ready. */
  complete(): Promise<void>;
  /** Deletes the table, also if it is protected, and waits for that. Returns false if there was no table. */
  remove(): Promise<boolean>;
}

const keyAttribute = "key";
const expiryAttribute = "expires";
/** The most items that DynamoDB returns at once. */
const mostItems = 100;
/** The milliseconds after which the command gives up. DynamoDB usually creates or deletes a table in seconds. */
const patience = 600_000;

/** What AWS says about the DynamoDB table of a stage's ledger. */
interface TableState {
  /** DynamoDB's status of the table, such as ACTIVE; undefined if there is no table. */
  status: string | undefined;
  /** The attribute with the time at which DynamoDB deletes a value; undefined if it deletes none. */
  expiry?: string | undefined;
  /** True if point-in-time recovery is on. */
  isRecoverable?: boolean;
  /** True if deletion protection is on. */
  isProtected?: boolean;
}

/** The answer of DynamoDB's BatchGetItem. */
interface BatchGetItemAnswer {
  Responses?: Record<string, { key: { S: string }; value?: { S: string }; until?: { N: string } }[]>;
  UnprocessedKeys?: Record<string, { Keys: object[] }>;
}

const toText = (value: unknown) => (typeof value === "string" ? value : undefined);

/** Creates, completes, reads and deletes the DynamoDB table of a stage's ledger. */
export const openLedgerTable = (stage: string, call: DynamoDbCall): LedgerTable => {
  const TableName = buildLedgerTableName(stage);
  const readState = async (): Promise<TableState> => {
    const found = await call("DescribeTable", { TableName }).catch(
      createFallbackForErrorNamed("ResourceNotFoundException", {}),
    );
    const { TableStatus, KeySchema, AttributeDefinitions, ...table } = toMap(toMap(found).Table);
    const status = toText(TableStatus);
    if (status === undefined || status === "DELETING") return { status };
    requireLedgerKey(TableName, KeySchema, AttributeDefinitions);
    const isProtected = table.DeletionProtectionEnabled === true;
    if (status !== "ACTIVE") return { status, isProtected };
    const [{ TimeToLiveDescription }, { ContinuousBackupsDescription }] = await Promise.all([
      call("DescribeTimeToLive", { TableName }),
      call("DescribeContinuousBackups", { TableName }),
    ]);
    const { TimeToLiveStatus, AttributeName } = toMap(TimeToLiveDescription);
    const { PointInTimeRecoveryStatus } = toMap(toMap(ContinuousBackupsDescription).PointInTimeRecoveryDescription);
    return {
      status,
      expiry: /^ENABL/.test(String(TimeToLiveStatus)) ? toText(AttributeName) : undefined,
      isRecoverable: PointInTimeRecoveryStatus === "ENABLED",
      isProtected,
    };
  };
  const calls = {
    create: () =>
      call("CreateTable", {
        TableName,
        KeySchema: [{ AttributeName: keyAttribute, KeyType: "HASH" }],
        AttributeDefinitions: [{ AttributeName: keyAttribute, AttributeType: "S" }],
        BillingMode: "PAY_PER_REQUEST",
        DeletionProtectionEnabled: true,
        Tags: [{ Key: "STAGE", Value: stage }],
      }),
    expire: () =>
      call("UpdateTimeToLive", {
        TableName,
        TimeToLiveSpecification: { AttributeName: expiryAttribute, Enabled: true },
      }),
    backUp: () =>
      call("UpdateContinuousBackups", {
        TableName,
        PointInTimeRecoverySpecification: { PointInTimeRecoveryEnabled: true },
      }),
    setProtection: (DeletionProtectionEnabled: boolean) =>
      call("UpdateTable", { TableName, DeletionProtectionEnabled }),
  };
  /** Reads the table's state and calls the step that `findStep` returns, until `findStep` returns undefined. */
  const proceed = async (findStep: (state: TableState) => (() => Promise<unknown>) | "wait" | undefined) => {
    const end = Date.now() + patience;
    for (let pause = 50; ; ) {
      const state = await readState();
      const step = findStep(state);
      if (step === undefined) return;
      if (Date.now() > end)
        throw new Complaint(
          `the table ${TableName} was not ready in ten minutes: ${listFaults(state).join("; ")}; run the command again`,
          3,
        );
      if (step !== "wait" && (await tryStep(step))) continue;
      await wait(pause);
      pause = Math.min(2000, pause * 2);
    }
  };
  return {
    name: TableName,
    readFaults: async () => {
      const state = await readState();
      return state.status === undefined ? undefined : listFaults(state);
    },
    readValues: async (keys) => {
      const values = new Map<string, unknown>();
      let unread: object[] = keys.map((key) => ({ [keyAttribute]: { S: key } }));
      while (unread.length > 0) {
        const answer = await call("BatchGetItem", {
          RequestItems: { [TableName]: { Keys: unread.slice(0, mostItems) } },
        });
        const { Responses, UnprocessedKeys } = answer as BatchGetItemAnswer;
        for (const { key, value, until } of Responses?.[TableName] ?? []) {
          const isOver = until !== undefined && Number(until.N) <= Date.now();
          if (value !== undefined && !isOver) values.set(key.S, JSON.parse(value.S));
        }
        unread = [...(UnprocessedKeys?.[TableName]?.Keys ?? []), ...unread.slice(mostItems)];
      }
      return values;
    },
    complete: () =>
      proceed(({ status, expiry, isRecoverable, isProtected }) => {
        if (status === undefined) return calls.create;
        if (status !== "ACTIVE") return "wait";
        if (expiry === undefined) return calls.expire;
        if (expiry !== expiryAttribute) throw buildExpiryComplaint(TableName, expiry);
        if (!isRecoverable) return calls.backUp;
        return isProtected ? undefined : () => calls.setProtection(true);
      }),
    remove: async () => {
      let isThere = false;
      await proceed(({ status, isProtected }) => {
        if (status === undefined) return undefined;
        isThere = true;
        if (status === "DELETING") return "wait";
        return isProtected ? () => calls.setProtection(false) : () => call("DeleteTable", { TableName });
      });
      return isThere;
    },
  };
};

/** Returns what differs from the table that a deployment creates, such as "its deletion protection is off". */
const listFaults = ({ status, expiry, isRecoverable, isProtected }: TableState): string[] => {
  if (status !== "ACTIVE") return [status === undefined ? "it doesn't exist" : `it is ${status}`];
  return [
    ...(expiry === expiryAttribute ? [] : [`its time to live is ${expiry === undefined ? "off" : `by ${expiry}`}`]),
    ...(isRecoverable ? [] : ["its point-in-time recovery is off"]),
    ...(isProtected ? [] : ["its deletion protection is off"]),
  ];
};

/** Calls a step. Returns false if DynamoDB refuses it because the table isn't ready, or because it is done already. */
const tryStep = (step: () => Promise<unknown>): Promise<boolean> =>
  step().then(
    () => true,
    (error: unknown) => {
      const isTooEarly = isErrorNamed(error, "ResourceInUseException", "ContinuousBackupsUnavailableException");
      // The step deletes or changes a table that another command has deleted.
      const isDeleted = isErrorNamed(error, "ResourceNotFoundException");
      // The step turns on the time to live, which an earlier call has turned on. The table's state doesn't show it yet.
      const isExpiring =
        isErrorNamed(error, "ValidationException") && /already enabled|modified multiple times/i.test(String(error));
      if (isTooEarly || isDeleted || isExpiring) return false;
      throw error;
    },
  );

/** Throws if a table of the ledger's name has another key, because something else than Postern has created it. */
const requireLedgerKey = (table: string, schema: unknown, attributes: unknown) => {
  const [key, ...others] = Array.isArray(schema) ? schema : [];
  const types = Array.isArray(attributes) ? attributes : [];
  const type = types.find(({ AttributeName }) => AttributeName === keyAttribute)?.AttributeType;
  if (key?.AttributeName === keyAttribute && type === "S" && others.length === 0) return;
  throw new Complaint(
    `the table ${table} in DynamoDB is no ledger of Postern, whose only key is the text attribute "${keyAttribute}": delete that table, or give the stage another name`,
    1,
  );
};

const buildExpiryComplaint = (table: string, attribute: string) =>
  new Complaint(
    `the table ${table} deletes values by the attribute "${attribute}" instead of "${expiryAttribute}": turn its time to live off, and deploy again after an hour, which DynamoDB needs for that`,
    1,
  );
