// What `freestone compare` compiles: a stack machine and an optimiser of its programs, in templates and classes. It
// includes nothing, so that every machine compiles the same.
using size = decltype(sizeof 0);

template <class T>
class List {
 public:
  List() = default;
  List(const List& other) {
    for (const T& item : other) push(item);
  }
  List(List&& other) noexcept : items_(other.items_), count_(other.count_), room_(other.room_) {
    other.items_ = nullptr;
    other.count_ = other.room_ = 0;
  }
  List& operator=(List other) noexcept {
    T* items = items_;
    items_ = other.items_;
    other.items_ = items;
    const size count = count_, room = room_;
    count_ = other.count_;
    room_ = other.room_;
    other.count_ = count;
    other.room_ = room;
    return *this;
  }
  ~List() { delete[] items_; }
  void push(T item) {
    if (count_ == room_) grow();
    items_[count_++] = static_cast<T&&>(item);
  }
  T pop() { return static_cast<T&&>(items_[--count_]); }
  T& operator[](size i) { return items_[i]; }
  const T& operator[](size i) const { return items_[i]; }
  size count() const { return count_; }
  const T* begin() const { return items_; }
  const T* end() const { return items_ + count_; }

 private:
  void grow() {
    room_ = room_ == 0 ? 8 : 2 * room_;
    T* moved = new T[room_];
    for (size i = 0; i < count_; ++i) moved[i] = static_cast<T&&>(items_[i]);
    delete[] items_;
    items_ = moved;
  }
  T* items_ = nullptr;
  size count_ = 0;
  size room_ = 0;
};

enum class Op : unsigned char { push, add, subtract, multiply, divide, negate, load, store, jump, branch, call, stop };

struct Step {
  Op op = Op::stop;
  long value = 0;
};

template <long kValue>
struct Power {
  static long of(long base) {
    const long half = Power<kValue / 2>::of(base);
    return kValue % 2 == 0 ? half * half : half * half * base;
  }
};
template <>
struct Power<0> {
  static long of(long) { return 1; }
};

template <class First, class Second>
struct Both {
  First first;
  Second second;
  bool operator()(Step& step) const { return first(step) | second(step); }
};

struct Fold {
  bool operator()(Step& step) const {
    if (step.op != Op::multiply || step.value != 1) return false;
    step = {Op::add, 0};
    return true;
  }
};
struct Lower {
  bool operator()(Step& step) const {
    if (step.op != Op::divide || step.value == 0) return false;
    step.value = Power<5>::of(step.value) + Power<12>::of(step.value) - Power<9>::of(step.value);
    return true;
  }
};

template <class Pass>
size improve(List<Step>& steps, const Pass& pass) {
  size changed = 0;
  for (size i = 0; i < steps.count(); ++i) changed += pass(steps[i]) ? 1 : 0;
  return changed;
}

long run(const List<Step>& steps, List<long>& memory, long most) {
  List<long> stack;
  long done = 0;
  for (size at = 0; at < steps.count() && done < most; ++at, ++done) {
    const Step& step = steps[at];
    long right = 0;
    switch (step.op) {
      case Op::push: stack.push(step.value); break;
      case Op::add: right = stack.pop(), stack.push(stack.pop() + right); break;
      case Op::subtract: right = stack.pop(), stack.push(stack.pop() - right); break;
      case Op::multiply: right = stack.pop(), stack.push(stack.pop() * right); break;
      case Op::divide: right = stack.pop(), stack.push(right == 0 ? 0 : stack.pop() / right); break;
      case Op::negate: stack.push(-stack.pop()); break;
      case Op::load: stack.push(memory[static_cast<size>(step.value)]); break;
      case Op::store: memory[static_cast<size>(step.value)] = stack.pop(); break;
      case Op::jump: at = static_cast<size>(step.value) - 1; break;
      case Op::branch:
        if (stack.pop() == 0) at = static_cast<size>(step.value) - 1;
        break;
      case Op::call: stack.push(Power<7>::of(stack.pop())); break;
      case Op::stop: return done;
    }
  }
  return done;
}

// A program of its own for each number, with a table sorted on the way.
template <class T, class Less>
void sort(List<T>& list, const Less& less) {
  for (size i = 1; i < list.count(); ++i) {
    T item = static_cast<T&&>(list[i]);
    size at = i;
    for (; at > 0 && less(item, list[at - 1]); --at) list[at] = static_cast<T&&>(list[at - 1]);
    list[at] = static_cast<T&&>(item);
  }
}

template <long kNumber>
struct Program {
  struct Row {
    long key = kNumber;
    List<long> values;
  };
  static long of(long most) {
    List<Step> steps;
    List<Row> rows;
    for (long i = 0; i < most; ++i) {
      steps.push({static_cast<Op>((i * kNumber) % 6), i % kNumber});
      rows.push({i * Power<kNumber>::of(i) % 4093, {}});
      rows[rows.count() - 1].values.push(i);
    }
    sort(rows, [](const Row& left, const Row& right) { return left.key < right.key; });
    List<long> memory;
    for (const Row& row : rows) memory.push(row.values[0] + row.key);
    while (improve(steps, Both<Fold, Both<Lower, Fold>>{}) != 0 && most > 0) --most;
    return run(steps, memory, most) + Program<kNumber - 1>::of(most);
  }
};
template <>
struct Program<0> {
  static long of(long) { return 0; }
};

long machine(long most) { return Program<3>::of(most); }
