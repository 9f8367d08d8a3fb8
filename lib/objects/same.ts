/** Whether two values of JSON are the same, in whatever order their members stand, and however deep they nest. */
export const isSame = (one: unknown, other: unknown): boolean => {
  const open: [unknown, unknown][] = [[one, other]];
  for (let pair = open.pop(); pair !== undefined; pair = open.pop()) {
    const [left, right] = pair;
    if (typeof left !== "object" || typeof right !== "object" || left === null || right === null) {
      if (left !== right) return false;
      continue;
    }
    const keys = Object.keys(left);
    if (Array.isArray(left) !== Array.isArray(right) || keys.length !== Object.keys(right).length) return false;
    for (const key of keys) {
      if (!Object.hasOwn(right, key)) return false;
      open.push([Reflect.get(left, key), Reflect.get(right, key)]);
    }
  }
  return true;
};
