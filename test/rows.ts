export { readRows } from "../infra/testing/rows.ts";
