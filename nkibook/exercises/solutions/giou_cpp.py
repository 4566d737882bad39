"""Answers to the exercises on the C++ operator."""


def rows_of_a_processor():
    return """
      const size_t id = get_cpu_id(), count = get_cpu_count();
      const size_t first = rows * id / count;
      const size_t last = rows * (id + 1) / count;
    """


def iou():
    return """
    static float giou_of(const float* a, const float* b) {
      const float w = std::min(a[2], b[2]) - std::max(a[0], b[0]);
      const float h = std::min(a[3], b[3]) - std::max(a[1], b[1]);
      const float overlap = std::max(w, 0.0f) * std::max(h, 0.0f);
      const float area_a = (a[2] - a[0]) * (a[3] - a[1]);
      const float area_b = (b[2] - b[0]) * (b[3] - b[1]);
      return overlap / (area_a + area_b - overlap);
    }
    """


def center_distance():
    return """
    static float giou_of(const float* a, const float* b) {
      const float dx = 0.5f * (a[0] + a[2] - b[0] - b[2]);
      const float dy = 0.5f * (a[1] + a[3] - b[1] - b[3]);
      return dx * dx + dy * dy;
    }
    """
