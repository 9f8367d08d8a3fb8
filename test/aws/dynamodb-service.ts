import type { AwsError, AwsReply, AwsService, TableRight } from "./aws-service.ts";

// A stand-in for DynamoDB: moto answers its calls. The stand-in adds AWS's names of errors, and lists the rights that
// IAM evaluates for each item of a call.

/** The fields of a call's input that name tables, items and tags. */
interface Input {
  TableName?: string;
  Tags?: object[];
  Key?: Item;
  Item?: Item;
  RequestItems?: Record<string, { Keys?: Item[] }>;
  TransactItems?: Record<string, { TableName: string; Key?: Item; Item?: Item }>[];
}
type Item = Record<string, { S?: string }>;

/** Opens the stand-in for DynamoDB. `moto` is moto's DynamoDB, which answers all calls. */
export const openDynamoDb = (moto: AwsService): AwsService => ({
  answer: moto.answer,
  identify: (request) => {
    const action = String(request.headers["x-amz-target"]).replace(/^.*\./, "");
    const input: Input = JSON.parse(String(request.body) || "{}");
    const rights = listRights(action, input);
    return { action: `dynamodb:${action}`, name: rights[0]?.table ?? "", rights };
  },
  refuse: refuseAsDynamoDb,
});

/** Returns the rights that a call needs, one for each item. A transaction needs only the rights to its items. */
const listRights = (action: string, input: Input): TableRight[] => {
  const { TableName: table = "", Tags, Key, Item, RequestItems, TransactItems } = input;
  const readKey = (item: Item | undefined) => item?.key?.S ?? "";
  if (RequestItems)
    return Object.entries(RequestItems).flatMap(([table, { Keys = [] }]) =>
      Keys.map((key) => ({ action: `dynamodb:${action}`, table, key: readKey(key) })),
    );
  if (TransactItems)
    return TransactItems.flatMap((transactItem) =>
      Object.entries(transactItem).map(([verb, { TableName: table, Key, Item }]) => {
        return { action: `dynamodb:${verb}Item`, table, key: readKey(Key ?? Item) };
      }),
    );
  const item = Key ?? Item;
  const actions = [action, ...(Tags ? ["TagResource"] : [])];
  return actions.map((name) => ({ action: `dynamodb:${name}`, table, ...(item && { key: readKey(item) }) }));
};

const refuseAsDynamoDb = ({ status, kind, message }: AwsError): AwsReply => {
  const isDenied = kind === "AccessDenied";
  const name = isDenied ? "com.amazon.coral.service#AccessDeniedException" : `com.amazonaws.dynamodb.v20120810#${kind}`;
  const headers = { "content-type": "application/x-amz-json-1.0" };
  return { status: isDenied ? 400 : status, headers, body: JSON.stringify({ __type: name, message }) };
};
