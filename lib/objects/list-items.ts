import { toMap } from "../json.ts";

/** An object in a YAML document: the document itself, or an item if the document is a List. */
export interface ListedObject {
  value: unknown;
  /** The index of the document. */
  document: number;
  /** The path of the item in the document; empty for the document itself. */
  path: (string | number)[];
}

/** Returns the objects in documents. An empty YAML document (null) contains no object. */
export const unpackLists = (documents: readonly unknown[]): ListedObject[] =>
  documents
    .flatMap((value, document): ListedObject[] => {
      const { kind, items } = toMap(value);
      const isList = typeof kind === "string" && kind.endsWith("List") && Array.isArray(items);
      if (!isList) return [{ value, document, path: [] }];
      return items.map((item: unknown, index) => ({ value: item, document, path: ["items", index] }));
    })
    .filter(({ value }) => value !== null && value !== undefined);
